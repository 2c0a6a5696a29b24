// Ranks in time, on a canvas: blocks where there is room for them, mixed colours where there is not.

const THIN = 2; // px of a band below which bands are mixed
const CROWDED = 0.6; // events a pixel beyond which a band is mixed
const LINED = 10; // px of a wait that is lined in a mixed band
const BLOCKS = 6000; // of all bands, that are drawn one by one

let canvas = null;

function drawTimeline() {
  const { context, width, height, ratio } = fitted(canvas);
  const step = currentStep();
  const view = viewOf(state);
  ofKinds = [];
  context.fillStyle = tokens.sheet;
  context.fillRect(0, 0, width, height);
  drawAxis(context, width, height);
  const room = height - AXIS - 8;
  const tall = room / (state.r1 - state.r0);
  const bands = step.bands.filter((band) => band.first < state.r1 && band.first + band.count > state.r0);
  if (bands.length * THIN > room) drawMixed(context, step, view, room, width, ratio);
  else drawBands(context, step, view, { bands, tall, width, room, ratio });
  drawRanks(context, step, tall, width, room);
}

/** All ranks at once, several to a pixel. */
function drawMixed(context, step, view, room, width, ratio) {
  const across = Math.max(1, Math.round((width - GUTTER - MARGIN) * ratio));
  const lines = linesOf(step, Math.max(1, Math.round(room * ratio)), view);
  const image = mixedImage(step, lines, across, view);
  context.putImageData(image, Math.round(GUTTER * ratio), Math.round(AXIS * ratio));
}

/** Events of a band in view beyond which they are mixed. */
const mostBlocks = (across, bands) => Math.max(3, Math.min(across * CROWDED, BLOCKS / bands));

function drawBands(context, step, view, { bands, tall, width, room, ratio }) {
  const across = width - GUTTER - MARGIN;
  const clip = [GUTTER, AXIS, across, room];
  let blocks = new Map(); // of the band above: event → its rectangle, which grows into this band
  const finished = [];
  context.save();
  context.beginPath();
  context.rect(...clip);
  context.clip();
  for (const band of bands) {
    const top = AXIS + (band.first - state.r0) * tall;
    const high = band.count * tall;
    const gap = high >= 5 ? 1 : 0;
    context.fillStyle = tokens.idle;
    context.fillRect(GUTTER, top, across, high - gap);
    const ofRow = row(band.number);
    const next = new Map();
    if (ofRow) {
      drawWaits(context, ofRow, { top, high: high - gap, width }, 0);
      const from = firstAfter(ofRow.events, state.t0);
      let until = from;
      while (until < ofRow.events.count && ofRow.events.start[until] < state.t1) until++;
      if (until - from > mostBlocks(across, bands.length)) {
        const image = mixedImage(step, [[[band.number, 1]]], Math.max(1, Math.round(across * ratio)), view);
        drawLine(context, image, GUTTER, top, across, high - gap);
        drawWaits(context, ofRow, { top, high: high - gap, width }, LINED);
        drawRuns(context, ofRow, { top, high: high - gap, width });
      } else collect(step, ofRow, from, until, { top, high: high - gap, width }, blocks, next);
    }
    for (const [key, block] of blocks) if (next.get(key) !== block) finished.push(block);
    blocks = next;
  }
  finished.push(...blocks.values());
  finished.sort((a, b) => a.order - b.order);
  for (const block of finished) drawBlock(context, block);
  context.restore();
}

/** Idle time in which a row waits for another module, in lines of that module's colour, where it is so wide. */
function drawWaits(context, ofRow, { top, high, width }, least) {
  for (const wait of state.path ? [] : ofRow.waits) {
    if (wait.end <= state.t0 || wait.start >= state.t1) continue;
    const x = toX(wait.start, width);
    if (toX(wait.end, width) - x < least) continue;
    context.fillStyle = hatch(context, wait.module);
    context.fillRect(x, top, Math.max(0.6, toX(wait.end, width) - x), high);
  }
}

let scratch = null;

function drawLine(context, image, x, y, width, height) {
  scratch ||= document.createElement("canvas");
  Object.assign(scratch, { width: image.width, height: 1 });
  scratch.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(scratch, x, y, width, height);
}

/** Rectangles of a band's events; an event that the band above has too becomes one with it. */
function collect(step, ofRow, from, until, box, above, next) {
  const { events } = ofRow;
  const strip = events.others && box.high >= 14 ? clamp(box.high * 0.25, 4, 9) : 0;
  const body = box.high - (strip ? strip + 1 : 0);
  for (let at = from; at < until; at++) {
    if (events.end[at] <= events.start[at]) continue;
    const compute = events.compute[at];
    const x = toX(events.start[at], box.width);
    const wide = Math.max(0.6, toX(events.end[at], box.width) - x);
    const lane = events.shares ? body * events.shares[at] : body / events.lanes;
    const below = events.shares ? body * events.from[at] : lane * events.lane[at];
    const y = compute ? box.top + below : strip ? box.top + body + 1 : box.top;
    const high = compute ? lane : strip || box.high;
    const key = `${events.kinds[at]}/${events.rows[at]}/${ofRow.groups[events.slots[at]]}/${events.start[at]}`;
    const before = strip || events.lanes > 1 || events.shares ? undefined : above.get(key);
    if (before) {
      before.high = y + high - before.y;
      next.set(key, before);
    } else next.set(key, { step, ofRow, at, x, y, wide, high, order: compute ? 1 : 0 });
  }
}

function drawBlock(context, { step, ofRow, at, x, y, wide, high }) {
  const colour = paint(step, ofRow, at);
  const inset = wide > 3 ? 0.5 : 0;
  context.fillStyle = colour.fill;
  context.fillRect(x + inset, y, wide - 2 * inset, high);
  const kind = data.kinds[ofRow.events.kinds[at]];
  if (ofRow.events.compute[at] && kind[2] > 0 && high >= 18 && wide >= 5 && state.colour !== "source") {
    const waits = (wide - 2 * inset) * Math.min(1, kind[2] / kind[1]);
    context.fillStyle = paintOf("c", "", state.path && colour === paintOf(tokenOf(step, ofRow.events.kinds[at], ofRow.groups[ofRow.events.slots[at]])[0], "", true)).fill;
    context.fillRect(x + wide - inset - waits, y + high - 3, waits, 3);
  }
  if (high < 13 || wide < 22) return;
  context.font = `12px ${FONT}`;
  context.textAlign = "left";
  context.fillStyle = colour.ink;
  const text = labelOf(step, ofRow, at).find((each) => context.measureText(each).width < wide - 10);
  if (text) context.fillText(text, Math.max(x, GUTTER) + 5, y + Math.min(high / 2 + 4, 18));
}

/** What a block says, from much to little. */
function labelOf(step, ofRow, at) {
  const event = eventOf(step, ofRow, at);
  const phase = event.text.slice(event.text.lastIndexOf("/") + 1);
  const short = event.microBatch < 0 ? phase : `${phase}${event.microBatch}`;
  const size = step.sizes.get(event.group) || 1;
  const named = modules.length > 1 ? `${event.module} ${short}` : short;
  return [`${named} · ${data.groups[event.group]} · ${size > 1 ? `${size} ranks, ` : ""}${event.tokens.toLocaleString("en")} tokens`,
    `${named} · ${data.groups[event.group]}`, named, short];
}

/** Names of ranks at the left, the chosen one and its chosen task marked. */
function drawRanks(context, step, tall, width, room) {
  context.font = `12px ${FONT}`;
  context.textAlign = "right";
  const every = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384].find((n) => n * tall >= 17) || 65536;
  for (let rank = Math.ceil(state.r0 / every) * every; rank < state.r1; rank += every) {
    const y = AXIS + (rank - state.r0 + Math.min(1, 18 / tall) / 2) * tall;
    if (y < AXIS + room && rank !== state.rank) {
      context.fillStyle = tokens.soft;
      context.fillText(String(rank), GUTTER - 10, Math.min(y + 4, AXIS + room));
    }
  }
  const y = AXIS + (state.rank - state.r0) * tall;
  if (y < AXIS - tall || y > AXIS + room) return;
  const shown = clamp(y + Math.min(tall, 18) / 2 + 4, AXIS + 10, AXIS + room);
  context.fillStyle = tokens.sheet;
  context.fillRect(0, shown - 13, GUTTER - 4, 18);
  context.fillStyle = tokens.ink;
  context.font = `600 12px ${FONT}`;
  context.fillText(String(state.rank), GUTTER - 10, shown);
  context.fillRect(GUTTER - 4, Math.max(AXIS, y), 3, Math.max(2, Math.min(tall, AXIS + room - y)));
  const ofRow = row(bandOf(step, state.rank).number);
  if (!ofRow || state.event < 0 || state.event >= ofRow.events.count) return;
  const [from, until] = [toX(ofRow.events.start[state.event], width), toX(ofRow.events.end[state.event], width)];
  if (until < GUTTER || from > width - MARGIN) return;
  const left = Math.max(GUTTER, from);
  const [first, beyond] = extent(step, ofRow);
  const above = Math.max(AXIS, AXIS + (first - state.r0) * tall) + 1;
  const below = Math.min(AXIS + room, AXIS + (beyond - state.r0) * tall) - 2;
  context.strokeStyle = tokens.mark;
  context.lineWidth = 2;
  context.strokeRect(left, above, Math.max(3, Math.min(until, width - MARGIN) - left), Math.max(2, below - above));
}

/** Ranks around the chosen one that share its chosen task: the first, and one past the last. */
function extent(step, ofRow) {
  const { events } = ofRow;
  const at = state.event;
  const same = (band) => {
    const other = row(band.number);
    if (!other || other === ofRow) return other === ofRow;
    const group = ofRow.groups[events.slots[at]];
    for (let i = firstAfter(other.events, events.start[at] - 1); i < other.events.count && other.events.start[i] <= events.start[at]; i++) {
      const alike = other.events.kinds[i] === events.kinds[at] && other.events.rows[i] === events.rows[at];
      if (alike && other.events.start[i] === events.start[at] && other.groups[other.events.slots[i]] === group) return true;
    }
    return false;
  };
  const here = step.bands.indexOf(bandOf(step, state.rank));
  let [low, high] = [here, here];
  while (low > 0 && same(step.bands[low - 1])) low--;
  while (high + 1 < step.bands.length && same(step.bands[high + 1])) high++;
  return [step.bands[low].first, step.bands[high].first + step.bands[high].count];
}
