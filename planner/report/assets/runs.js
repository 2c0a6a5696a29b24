// Levels of zoom: where a band has more events than room, consecutive micro-batches are drawn as one, as many as fill a label.

const RUN = 68; // px, about, of micro-batches drawn as one
const PLATE = 15; // px, height of a label's ground

const roundsMade = new Map(); // events of a row → its rounds

/** Micro-batches that begin together on a row, as in interleaved pipelines, or each alone: {first, last, start in ticks}. */
function roundsOf(events) {
  if (!roundsMade.has(events)) {
    const begun = new Map();
    for (let at = 0; at < events.count; at++) {
      const number = events.rows[at];
      if (number >= 0 && events.compute[at] && !begun.has(number)) begun.set(number, events.start[at]);
    }
    const starts = [...begun.values()];
    const apart = (starts[starts.length - 1] - starts[0]) / Math.max(1, starts.length - 1);
    const rounds = [];
    let before = -Infinity;
    for (const [number, start] of begun) {
      const last = rounds[rounds.length - 1];
      if (start - before < apart / 2) Object.assign(last, { first: Math.min(last.first, number), last: Math.max(last.last, number) });
      else rounds.push({ first: number, last: number, start });
      before = start;
    }
    roundsMade.set(events, rounds);
  }
  return roundsMade.get(events);
}

/** Rounds joined until each is about RUN wide at a scale, always a power of two of them. */
function runsOf(rounds, scale) {
  const each = ((rounds[rounds.length - 1].start - rounds[0].start) * scale) / (rounds.length - 1);
  const many = 2 ** Math.max(0, Math.ceil(Math.log2(RUN / Math.max(each, 1e-9))));
  const runs = [];
  for (let at = 0; at < rounds.length; at += many) {
    const joined = rounds.slice(at, at + many);
    const first = joined.reduce((least, round) => Math.min(least, round.first), Infinity);
    const last = joined.reduce((most, round) => Math.max(most, round.last), -1);
    runs.push({ first, last, start: joined[0].start });
  }
  return runs;
}

const runText = ({ first, last }) => (first === last ? `${first}` : `${first}–${last}`);

/** Where runs begin, and which micro-batches they are. */
function drawRuns(context, ofRow, { top, high, width }) {
  const rounds = roundsOf(ofRow.events);
  if (rounds.length < 2) return;
  context.font = `12px ${FONT}`;
  context.textAlign = "left";
  const runs = runsOf(rounds, scaleX(width));
  runs.forEach((run, number) => {
    const x = toX(run.start, width);
    const until = number + 1 < runs.length ? toX(runs[number + 1].start, width) : width;
    if (until < GUTTER || x > width - MARGIN) return;
    context.fillStyle = tokens.sheet;
    context.fillRect(Math.round(x), top, 1, Math.min(high, PLATE)); // below it colours stay true
    const left = Math.max(x, GUTTER);
    const wide = context.measureText(runText(run)).width + 7;
    if (high < PLATE + 2 || left + wide > until) return;
    context.globalAlpha = 0.85;
    context.fillRect(left, top, wide, PLATE);
    context.globalAlpha = 1;
    context.fillStyle = tokens.ink;
    context.fillText(runText(run), left + 4, top + 12);
  });
}

/** The micro-batches that the chosen one is drawn with; none where each has its own blocks. */
function runAt(ofRow, microBatch) {
  const { events } = ofRow;
  const width = canvas.getBoundingClientRect().width;
  const from = firstAfter(events, state.t0);
  let until = from;
  while (until < events.count && events.start[until] < state.t1) until++;
  const rounds = roundsOf(events);
  if (microBatch < 0 || rounds.length < 2 || until - from <= mostBlocks(width - GUTTER - MARGIN, currentStep().bands.length)) return "";
  const run = runsOf(rounds, scaleX(width)).find(({ first, last }) => first <= microBatch && microBatch <= last);
  return run && run.first < run.last ? runText(run) : "";
}
