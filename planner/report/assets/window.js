// The window: which ticks and which ranks are on the screen, and how it moves.

const GUTTER = 56; // px, for the names of ranks
const AXIS = 30; // px, for the time
const MARGIN = 10; // px, right of everything
const NARROWEST = 10; // ticks

/** A part of the step to draw: ticks, ranks, and the mixed lines that rows which look alike share. */
const viewOf = ({ t0, t1, r0, r1 }) => ({ t0, t1, r0, r1, known: new Map() });

/** Ticks of all that can be seen: where measured stands beside predicted, of the longest of them, so that both are to scale. */
function wholeEnd() {
  return data.measured.length ? data.steps.reduce((longest, step) => Math.max(longest, step.end), 0) : currentStep().end;
}

function zoomTime(factor, at) {
  const { t0, t1 } = state;
  const end = wholeEnd();
  const centre = at === undefined ? (t0 + t1) / 2 : at;
  const width = clamp((t1 - t0) * factor, Math.min(NARROWEST, end), end);
  const share = (centre - t0) / (t1 - t0 || 1);
  const from = clamp(centre - share * width, 0, end - width);
  change({ t0: from, t1: from + width });
}

function zoomRanks(factor, at) {
  const { r0, r1 } = state;
  const all = currentStep().ranks;
  const centre = at === undefined ? (r0 + r1) / 2 : at;
  const height = clamp((r1 - r0) * factor, Math.min(1, all), all);
  const share = (centre - r0) / (r1 - r0 || 1);
  const from = clamp(centre - share * height, 0, all - height);
  change({ r0: from, r1: from + height });
}

function moveBy(ticksAcross, ranksDown) {
  const step = currentStep();
  const width = state.t1 - state.t0;
  const height = state.r1 - state.r0;
  const t0 = clamp(state.t0 + ticksAcross, 0, wholeEnd() - width);
  const r0 = clamp(state.r0 + ranksDown, 0, step.ranks - height);
  change({ t0, t1: t0 + width, r0, r1: r0 + height });
}

function wholeStep() {
  change({ t0: 0, t1: wholeEnd(), r0: 0, r1: currentStep().ranks });
}

/** Move as little as needed to see a rank and a span of time. */
function reveal(rank, start, end) {
  const { t0, t1, r0, r1 } = state;
  const down = rank < r0 ? rank - r0 : rank + 1 > r1 ? rank + 1 - r1 : 0;
  const across = start < t0 ? start - t0 : end > t1 ? Math.min(end - t1, start - t0) : 0;
  if (down || across) moveBy(across, down);
}

const scaleX = (width) => (width - GUTTER - MARGIN) / (state.t1 - state.t0 || 1);
const toX = (tick, width) => GUTTER + (tick - state.t0) * scaleX(width);
const toTick = (x, width) => state.t0 + (x - GUTTER) / scaleX(width);

/** Times along the top, at round numbers, and which part of the step is in view. */
function drawAxis(context, width, height) {
  const { t0, t1 } = state;
  const unit = data.tick * t1 >= 1 ? 1 : data.tick * t1 >= 1e-3 ? 1e-3 : 1e-6;
  const name = { 1: "s", 0.001: "ms", 0.000001: "µs" }[unit];
  const [low, high] = [(t0 * data.tick) / unit, (t1 * data.tick) / unit];
  const found = ticks(low, high, (width - GUTTER) / 96);
  const digits = found.length > 1 ? Math.max(0, -Math.floor(Math.log10(found[1] - found[0]) + 1e-9)) : 2;
  context.font = `12px ${FONT}`;
  context.textAlign = "center";
  for (const at of found) {
    const x = toX((at * unit) / data.tick, width);
    context.fillStyle = tokens.line;
    context.fillRect(Math.round(x), AXIS - 5, 1, height - AXIS + 5);
    context.fillStyle = tokens.soft;
    const text = `${at.toFixed(digits)} ${name}`;
    const half = context.measureText(text).width / 2;
    context.fillText(text, clamp(x, GUTTER + half, width - half - 2), 18);
  }
  const end = wholeEnd() || 1;
  if (t1 - t0 < end) {
    const room = width - GUTTER - MARGIN;
    context.fillStyle = tokens.line;
    context.fillRect(GUTTER, 0, room, 3);
    context.fillStyle = tokens.soft;
    context.fillRect(GUTTER + (t0 / end) * room, 0, Math.max(3, ((t1 - t0) / end) * room), 3);
  }
}
