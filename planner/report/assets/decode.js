// Columns of integers back into rows of events; see planner/report/timeline_columns.py.

const COMPUTE = new Set(["F", "B", "I", "W", "update"]);
const SHARE = 6; // column of a kind: its share of the device in thousandths, where it has not all of it
const patterns = []; // decoded on first use

function summed(since) {
  const values = new Int32Array(since.length);
  let sum = 0;
  for (let i = 0; i < since.length; i++) values[i] = sum += since[i];
  return values;
}

/** Events of a pattern in order of their starts: typed columns, lanes of what overlaps, the latest end so far. */
function pattern(number) {
  if (patterns[number]) return patterns[number];
  const [kinds, rows, slots, since] = data.patterns[number];
  const count = kinds.length;
  const start = summed(since);
  const end = new Int32Array(count);
  const latest = new Int32Array(count);
  const compute = new Uint8Array(count);
  const lane = new Uint8Array(count);
  const shares = kinds.some((kind) => data.kinds[kind].length > SHARE) ? new Float32Array(count).fill(1) : null;
  const from = shares && new Float32Array(count); // of a row's height, below which an event's share begins
  const busy = [];
  const held = []; // shares of the device that are held, in the order of where they begin
  let last = 0;
  let others = false;
  for (let i = 0; i < count; i++) {
    const [name, ticks] = data.kinds[kinds[i]];
    end[i] = start[i] + ticks;
    latest[i] = last = Math.max(last, end[i]);
    compute[i] = COMPUTE.has(data.names[name][1]) ? 1 : 0;
    if (compute[i] && shares) {
      shares[i] = (data.kinds[kinds[i]][SHARE] ?? 1000) / 1000;
      from[i] = firstRoom(held, start[i], end[i], shares[i]);
    } else if (compute[i]) {
      let at = busy.findIndex((until) => until <= start[i] + 1);
      if (at < 0) at = busy.length;
      busy[at] = end[i];
      lane[i] = Math.min(at, 255);
    } else if (ticks > 0) others = true;
  }
  const lanes = Math.max(1, busy.length);
  return (patterns[number] = { count, kinds, rows, slots, start, end, latest, compute, lane, lanes, shares, from, others });
}

/** Where a share of the device has room beside those that are held at its start. */
function firstRoom(held, start, end, share) {
  for (let at = held.length - 1; at >= 0; at--) if (held[at].until <= start + 1) held.splice(at, 1);
  let from = 0;
  let place = 0;
  while (place < held.length && held[place].from < from + share - 1e-6) from = held[place].from + held[place++].share;
  held.splice(place, 0, { from, share, until: end });
  return Math.min(from, 1 - share);
}

const rowsMade = [];

/** When a row waits for another module: {module, start, end} in ticks. */
function waitsOf(number) {
  const found = (data.rowWaits || [])[number];
  if (found === undefined || found < 0) return [];
  const [of, since, lengths] = data.waits[found];
  const starts = summed(since);
  return of.map((module, i) => ({ module: data.waited[module], start: starts[i], end: starts[i] + lengths[i] }));
}

/** A row: its pattern and the groups that stand in its slots. */
function row(number) {
  if (number < 0) return null;
  if (!rowsMade[number]) {
    const [first, ...groups] = data.rows[number];
    rowsMade[number] = { number, events: pattern(first), groups, waits: waitsOf(number) };
  }
  return rowsMade[number];
}

/** A step: runs of ranks with the same row. */
function decodeStep(step) {
  const bands = step.ranks.map(([first, count, number]) => ({ first, count, number }));
  const lastBand = bands[bands.length - 1];
  const ranks = lastBand ? lastBand.first + lastBand.count : 0;
  const sizes = new Map(); // group → ranks
  for (const band of bands) {
    if (band.number >= 0) {
      for (const group of data.rows[band.number].slice(1)) sizes.set(group, (sizes.get(group) || 0) + band.count);
    }
  }
  const path = new Set(step.path[0].map((name, i) => pathKey(name, step.path[1][i], step.path[2][i])));
  return { ...step, bands, ranks: Math.max(1, ranks), sizes, path };
}

const pathKey = (name, microBatch, group) => `${name}/${microBatch}/${group}`;
const stepsMade = [];
const stepOf = (number) => (stepsMade[number] ||= decodeStep(data.steps[number]));
const currentStep = () => stepOf(state.step);

function bandOf(step, rank) {
  let low = 0;
  let high = step.bands.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (step.bands[middle].first <= rank) low = middle;
    else high = middle - 1;
  }
  return step.bands[low];
}

/** Everything there is to say of event `at` of a row. */
function eventOf(step, ofRow, at) {
  const { kinds, rows, slots, start, end } = ofRow.events;
  const [name, ticks, comm, source, spread, tokensOf] = data.kinds[kinds[at]];
  const [text, phase, module] = data.names[name];
  const group = ofRow.groups[slots[at]];
  const microBatch = rows[at];
  const id = `${text}/${microBatch < 0 ? "step" : microBatch}/${data.groups[group]}`;
  const layers = text.slice(0, text.lastIndexOf("/"));
  const held = step.items[`${layers}/${microBatch}/${group}`] || step.items[`${module}/${microBatch}/${group}`];
  return { id, text, phase, module, group, microBatch, name, ticks, comm, source, spread, tokens: tokensOf,
    start: start[at], end: end[at], items: held || [[], []] };
}

/** The first event that may reach beyond a tick: all before it have ended. */
function firstAfter(events, tick) {
  let low = 0;
  let high = events.count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events.latest[middle] > tick) high = middle;
    else low = middle + 1;
  }
  return low;
}
