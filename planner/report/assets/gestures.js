// Wheel, drag, pinch and keys on the timeline.

const FAR = 5; // px that a pointer moves before a touch is a drag

function startGestures() {
  const down = new Map(); // pointer → where it is
  let moved = 0;
  let spread = null; // of two pointers
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top, width: box.width, height: box.height };
  };
  const rankAt = (at) => state.r0 + ((at.y - AXIS) / (at.height - AXIS - 8)) * (state.r1 - state.r0);

  canvas.addEventListener("wheel", (event) => {
    const focused = document.activeElement === canvas;
    const zooming = event.ctrlKey || event.metaKey || (focused && Math.abs(event.deltaY) >= Math.abs(event.deltaX));
    const at = place(event);
    if (zooming) {
      event.preventDefault();
      const factor = Math.exp(clamp(event.deltaY, -120, 120) * (event.deltaMode ? 0.05 : 0.004));
      if (event.shiftKey) zoomRanks(factor, rankAt(at));
      else zoomTime(factor, toTick(at.x, at.width));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && state.t1 - state.t0 < wholeEnd()) {
      event.preventDefault();
      moveBy(event.deltaX / scaleX(at.width), 0);
    }
  }, { passive: false });

  canvas.addEventListener("pointerdown", (event) => {
    down.set(event.pointerId, place(event));
    canvas.setPointerCapture?.(event.pointerId);
    moved = 0;
    spread = null;
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    const before = down.get(event.pointerId);
    if (!before) {
      if (event.pointerType === "mouse") pick(at, rankAt(at), false);
      return;
    }
    down.set(event.pointerId, at);
    moved += Math.abs(at.x - before.x) + Math.abs(at.y - before.y);
    if (down.size === 2) {
      const [a, b] = [...down.values()];
      const now = { x: Math.max(24, Math.abs(a.x - b.x)), middle: (a.x + b.x) / 2 };
      if (spread) zoomTime(spread.x / now.x, toTick(now.middle, at.width));
      if (spread) moveBy((spread.middle - now.middle) / scaleX(at.width), 0);
      spread = now;
    } else if (moved > FAR) {
      canvas.style.cursor = "grabbing";
      const perRank = (at.height - AXIS - 8) / (state.r1 - state.r0);
      moveBy((before.x - at.x) / scaleX(at.width), event.pointerType === "mouse" ? (before.y - at.y) / perRank : 0);
    }
  });
  const up = (event) => {
    if (event.type === "pointerup" && down.size === 1 && moved <= FAR) pick(place(event), rankAt(place(event)), true);
    down.delete(event.pointerId);
    spread = null;
    canvas.style.cursor = "";
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("dblclick", (event) => zoomTime(0.4, toTick(place(event).x, place(event).width)));
  canvas.addEventListener("keydown", keys);
  $$("[data-do]").forEach((button) => button.addEventListener("click", () => ACTIONS[button.dataset.do]()));
}

const ACTIONS = {
  "zoom-in": () => zoomTime(0.6),
  "zoom-out": () => zoomTime(1 / 0.6),
  taller: () => zoomRanks(0.6, state.rank + 0.5),
  flatter: () => zoomRanks(1 / 0.6, state.rank + 0.5),
  reset: wholeStep,
  next: () => nextTask(1),
  previous: () => nextTask(-1),
};

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const across = (state.t1 - state.t0) / 8;
  const act = {
    "+": ACTIONS["zoom-in"], "=": ACTIONS["zoom-in"], "-": ACTIONS["zoom-out"], "−": ACTIONS["zoom-out"],
    0: wholeStep, Home: wholeStep, ".": ACTIONS.next, ",": ACTIONS.previous,
    "]": ACTIONS.taller, "[": ACTIONS.flatter,
    ArrowLeft: () => moveBy(-across, 0), ArrowRight: () => moveBy(across, 0),
    ArrowUp: () => chooseRank(state.rank - 1), ArrowDown: () => chooseRank(state.rank + 1),
  }[event.key];
  if (!act) return;
  event.preventDefault();
  act();
}

function chooseRank(rank) {
  const step = currentStep();
  const chosen = clamp(rank, 0, step.ranks - 1);
  change({ rank: chosen, event: -1 });
  reveal(chosen, state.t0, state.t1);
  chooseVisible();
  say(true);
}

function chooseVisible() {
  const ofRow = row(bandOf(currentStep(), state.rank).number);
  change({ event: ofRow ? visibleEvent(ofRow) : -1 });
  say(false);
}

/** The longest task of a row that is in view; what happens once a step only if there is nothing else. */
function visibleEvent(ofRow) {
  const { events } = ofRow;
  let best = -1;
  let most = 0;
  for (let at = firstAfter(events, state.t0); at < events.count && events.start[at] < state.t1; at++) {
    const weight = (events.end[at] - events.start[at]) * (events.rows[at] < 0 ? 1e-6 : 1);
    if (events.compute[at] && weight > most) [best, most] = [at, weight];
  }
  return best;
}

function nextTask(by) {
  const ofRow = row(bandOf(currentStep(), state.rank).number);
  if (!ofRow) return;
  const at = state.event < 0 ? firstAfter(ofRow.events, state.t0) : clamp(state.event + by, 0, ofRow.events.count - 1);
  change({ event: at });
  reveal(state.rank, ofRow.events.start[at], ofRow.events.end[at]);
  say(true);
}

/** The task under a point, else none; a tap chooses it, a mouse that passes only shows it. */
function pick(at, atRank, chosen) {
  const step = currentStep();
  if (at.y < AXIS || at.x < GUTTER - 50) return;
  const rank = clamp(Math.floor(atRank), 0, step.ranks - 1);
  const ofRow = row(bandOf(step, rank).number);
  const tick = toTick(at.x, at.width);
  change({ rank, tick, event: ofRow ? eventAt(ofRow, tick, 4 / scaleX(at.width)) : -1 });
  const wait = ofRow && state.event < 0 ? waitAt(ofRow, tick) : null;
  canvas.title = wait ? `waits for ${wait.module}` : "";
  say(chosen);
}

/** The wait for another module in which a tick lies. */
const waitAt = (ofRow, tick) => ofRow.waits.find(({ start, end }) => start <= tick && tick <= end) || null;

/** Compute first, then what is nearest. */
function eventAt(ofRow, tick, near) {
  const { events } = ofRow;
  let best = -1;
  let score = Infinity;
  for (let at = firstAfter(events, tick - near); at < events.count && events.start[at] <= tick + near; at++) {
    if (events.end[at] <= events.start[at]) continue;
    const away = Math.max(events.start[at] - tick, tick - events.end[at], 0);
    const own = away + (events.compute[at] ? 0 : near / 2);
    if (own < score && away <= near) [best, score] = [at, own];
  }
  return best;
}
