// Where there are more events or ranks than pixels: the colour of a pixel is the mix of what happens in it.

/** Colours of one row, pixel by pixel: red, green and blue, each weighted by the time that it takes. */
function mixed(step, ofRow, pixels, view, background) {
  const out = new Float32Array(3 * pixels);
  const under = new Float32Array(3 * pixels);
  const computing = new Float32Array(pixels);
  const moving = new Float32Array(pixels);
  const { t0, t1 } = view;
  const scale = pixels / (t1 - t0 || 1);
  const { events } = ofRow;
  for (let at = firstAfter(events, t0); at < events.count && events.start[at] < t1; at++) {
    const from = Math.max(0, (events.start[at] - t0) * scale);
    const until = Math.min(pixels, (events.end[at] - t0) * scale);
    if (until <= from) continue;
    const [r, g, b] = paint(step, ofRow, at).rgb;
    const [colours, cover] = events.compute[at] ? [out, computing] : [under, moving];
    const last = Math.min(pixels - 1, Math.floor(until));
    for (let x = Math.floor(from); x <= last; x++) {
      const share = Math.min(x + 1, until) - Math.max(x, from);
      cover[x] += share;
      colours[3 * x] += share * r;
      colours[3 * x + 1] += share * g;
      colours[3 * x + 2] += share * b;
    }
  }
  const waited = new Float32Array(pixels);
  const tints = new Float32Array(3 * pixels);
  for (const wait of state.path ? [] : ofRow.waits) {
    const from = Math.max(0, (wait.start - t0) * scale);
    const until = Math.min(pixels, (wait.end - t0) * scale);
    const tint = until > from ? waitTint(wait.module) : null;
    for (let x = Math.floor(from); tint && x <= Math.min(pixels - 1, Math.floor(until)); x++) {
      const share = Math.min(x + 1, until) - Math.max(x, from);
      waited[x] += share;
      for (let c = 0; c < 3; c++) tints[3 * x + c] += share * tint[c];
    }
  }
  for (let x = 0; x < pixels; x++) {
    const busy = Math.min(1, computing[x]);
    const waits = Math.min(1 - busy, moving[x]);
    const idle = 1 - busy - waits;
    for (let c = 0; c < 3; c++) {
      const worked = computing[x] > 0 ? (out[3 * x + c] * busy) / computing[x] : 0;
      const moved = waits > 0 ? (under[3 * x + c] * waits) / moving[x] : 0;
      const told = waited[x] > 0 ? Math.min(idle, waited[x]) : 0;
      const marked = told ? (tints[3 * x + c] * told) / waited[x] : 0;
      out[3 * x + c] = worked + moved + marked + (idle - told) * background[c];
    }
  }
  return out;
}

/** An image of bands, each a line of mixed colours. `lines`: for each pixel from top to bottom, [row, weight] pairs. */
function mixedImage(step, lines, pixels, view) {
  const image = new ImageData(pixels, lines.length);
  const background = rgb(tokens.idle);
  const coloured = (number) => {
    const looks = byKind() ? `p${data.rows[number][0]}/${(data.rowWaits || [])[number]}` : number;
    if (!view.known.has(looks)) view.known.set(looks, mixed(step, row(number), pixels, view, background));
    return view.known.get(looks);
  };
  let before = "";
  lines.forEach((parts, y) => {
    const key = parts.join(";");
    const offset = 4 * pixels * y;
    if (y && key === before) {
      image.data.copyWithin(offset, offset - 4 * pixels, offset);
      return;
    }
    before = key;
    const total = parts.reduce((sum, [, weight]) => sum + weight, 0) || 1;
    const sum = new Float32Array(3 * pixels);
    for (const [number, weight] of parts) {
      const colours = number < 0 ? null : coloured(number);
      const share = weight / total;
      for (let i = 0; i < sum.length; i++) sum[i] += share * (colours ? colours[i] : background[i % 3]);
    }
    for (let x = 0; x < pixels; x++) {
      for (let c = 0; c < 3; c++) image.data[offset + 4 * x + c] = sum[3 * x + c];
      image.data[offset + 4 * x + 3] = 255;
    }
  });
  return image;
}

/** Of each pixel from top to bottom: which rows lie in it, and how much of it they take. */
function linesOf(step, pixels, view) {
  const lines = [];
  const height = (view.r1 - view.r0) / pixels;
  for (let y = 0; y < pixels; y++) {
    const low = view.r0 + y * height;
    const high = low + height;
    const parts = new Map();
    let rank = low;
    while (rank < high - 1e-9) {
      const band = bandOf(step, Math.min(step.ranks - 1, Math.floor(rank + 1e-9)));
      const until = Math.min(high, band.first + band.count);
      if (until <= rank) break;
      parts.set(band.number, (parts.get(band.number) || 0) + until - rank);
      rank = until;
    }
    lines.push([...parts].sort((a, b) => a[0] - b[0]).map(([number, weight]) => [number, Math.round(weight * 1e6) / 1e6]));
  }
  return lines;
}
