// Predicted against measured, both axes logarithmic and alike; one kind of mark for each source.

const SHAPES = [
  (c, r) => c.arc(0, 0, r, 0, 7),
  (c, r) => c.rect(-r * 0.86, -r * 0.86, r * 1.72, r * 1.72),
  (c, r) => polygon(c, [[0, -r * 1.2], [r * 1.2, 0], [0, r * 1.2], [-r * 1.2, 0]]),
  (c, r) => polygon(c, [[0, -r * 1.15], [r * 1.1, r * 0.85], [-r * 1.1, r * 0.85]]),
  (c, r) => polygon(c, [[0, r * 1.15], [r * 1.1, -r * 0.85], [-r * 1.1, -r * 0.85]]),
  (c, r) => polygon(c, [[-r, -r * 0.35], [-r * 0.35, -r * 0.35], [-r * 0.35, -r], [r * 0.35, -r], [r * 0.35, -r * 0.35], [r, -r * 0.35],
    [r, r * 0.35], [r * 0.35, r * 0.35], [r * 0.35, r], [-r * 0.35, r], [-r * 0.35, r * 0.35], [-r, r * 0.35]]),
  (c, r) => polygon(c, [[-r * 1.2, -r * 0.4], [r * 1.2, -r * 0.4], [r * 1.2, r * 0.4], [-r * 1.2, r * 0.4]]),
];

function polygon(context, points) {
  points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
}

const plot = { source: -1, panel: 0, point: -1 };
const EDGE = { left: 52, right: 14, top: 10, bottom: 44 };

function drawMark(context, x, y, source, size, faded) {
  context.save();
  context.translate(x, y);
  context.beginPath();
  SHAPES[source % SHAPES.length](context, size);
  context.globalAlpha = faded ? 0.12 : 0.85;
  context.fillStyle = tokens[`p${source % 8}`];
  context.fill();
  context.globalAlpha = faded ? 0.15 : 1;
  context.lineWidth = 0.7;
  context.strokeStyle = tokens.sheet;
  context.stroke();
  context.restore();
}

function rangeOf(panel) {
  const all = [...panel.measured, ...panel.predicted];
  const low = all.reduce((a, b) => Math.min(a, b), Infinity) / 1.25;
  return [low, all.reduce((a, b) => Math.max(a, b), 0) * 1.25];
}

function scaleOf(canvas, panel) {
  const box = canvas.getBoundingClientRect();
  const [low, high] = (panel.range ||= rangeOf(panel));
  const share = (value) => Math.log(value / low) / Math.log(high / low);
  const wide = box.width - EDGE.left - EDGE.right;
  const tall = box.height - EDGE.top - EDGE.bottom;
  return { x: (v) => EDGE.left + share(v) * wide, y: (v) => box.height - EDGE.bottom - share(v) * tall, low, high };
}

function drawPanel(canvas) {
  const number = Number(canvas.dataset.panel);
  const panel = data.panels[number];
  const { context, width, height } = fitted(canvas);
  const scale = scaleOf(canvas, panel);
  context.fillStyle = tokens.sheet;
  context.fillRect(0, 0, width, height);
  drawGrid(context, scale, panel, width, height);
  const order = [...panel.source.keys()].sort((a, b) => (panel.source[a] === plot.source) - (panel.source[b] === plot.source));
  for (const at of order) {
    const faded = plot.source >= 0 && panel.source[at] !== plot.source;
    drawMark(context, scale.x(panel.measured[at]), scale.y(panel.predicted[at]), panel.source[at], 4, faded);
  }
  if (number === plot.panel && plot.point >= 0) {
    const [x, y] = [scale.x(panel.measured[plot.point]), scale.y(panel.predicted[plot.point])];
    drawMark(context, x, y, panel.source[plot.point], 7, false);
    context.strokeStyle = tokens.mark;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x, y, 11, 0, 7);
    context.stroke();
  }
}

function drawGrid(context, { x, y, low, high }, panel, width, height) {
  context.font = `12px ${FONT}`;
  const factors = high / low < 1e3 && width > 340 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    for (const value of factors.map((factor) => factor * 10 ** power).filter((v) => v >= low && v <= high)) {
      context.fillStyle = tokens.line;
      context.fillRect(x(value), EDGE.top, 1, height - EDGE.top - EDGE.bottom);
      context.fillRect(EDGE.left, y(value), width - EDGE.left - EDGE.right, 1);
      context.fillStyle = tokens.soft;
      context.textAlign = "center";
      context.fillText(String(Number(value.toPrecision(6))), x(value), height - EDGE.bottom + 17);
      context.textAlign = "right";
      context.fillText(String(Number(value.toPrecision(6))), EDGE.left - 7, y(value) + 4);
    }
  }
  context.textAlign = "center";
  context.fillText(`measured, ${panel.unit}`, EDGE.left + (width - EDGE.left) / 2, height - 8);
  context.save();
  context.translate(12, (height - EDGE.bottom) / 2);
  context.rotate(-Math.PI / 2);
  context.fillText(`predicted, ${panel.unit}`, 0, 0);
  context.restore();
  for (const factor of [0.9, 1, 1.1]) {
    context.setLineDash(factor === 1 ? [] : [3, 4]);
    context.strokeStyle = factor === 1 ? tokens.ink : tokens.soft;
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x(Math.max(low, low / factor)), y(Math.max(low, low * factor)));
    context.lineTo(x(Math.min(high, high / factor)), y(Math.min(high, high * factor)));
    context.stroke();
  }
  context.setLineDash([]);
}

function pickPoint(canvas, event) {
  const panel = data.panels[Number(canvas.dataset.panel)];
  const box = canvas.getBoundingClientRect();
  const scale = scaleOf(canvas, panel);
  let best = -1;
  let nearest = 18;
  panel.source.forEach((source, at) => {
    if (plot.source >= 0 && source !== plot.source) return;
    const away = Math.hypot(scale.x(panel.measured[at]) - event.clientX + box.left, scale.y(panel.predicted[at]) - event.clientY + box.top);
    if (away < nearest) [best, nearest] = [at, away];
  });
  if (best >= 0) choosePoint(Number(canvas.dataset.panel), best);
}

function choosePoint(number, at) {
  Object.assign(plot, { panel: number, point: at });
  const panel = data.panels[number];
  const [measured, predicted] = [panel.measured[at], panel.predicted[at]];
  const error = 100 * (predicted / measured - 1);
  const spread = panel.spread[at] ? `; 80 % interval ${(predicted * Math.exp(-panel.spread[at])).toPrecision(4)} to ${(predicted * Math.exp(panel.spread[at])).toPrecision(4)}` : "";
  const said = `${measured} ${panel.unit} measured, ${predicted} ${panel.unit} predicted (${error >= 0 ? "+" : ""}${error.toFixed(1)} %)${spread}`;
  $("#point").replaceChildren(element("b", `${data.sources[panel.source[at]]} · ${panel.name[at]}`), element("br"), said);
  repaint();
}

/** From point to point of the chosen source, by what was measured. */
function nextPoint(canvas, by) {
  const number = Number(canvas.dataset.panel);
  const panel = data.panels[number];
  const order = [...panel.source.keys()].filter((at) => plot.source < 0 || panel.source[at] === plot.source);
  order.sort((a, b) => panel.measured[a] - panel.measured[b] || a - b);
  const now = plot.panel === number ? order.indexOf(plot.point) : -1;
  if (order.length) choosePoint(number, order[clamp(now + by, 0, order.length - 1)]);
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function startScatter() {
  const canvases = $$("[data-panel]");
  canvases.forEach((canvas) => {
    painters.push(() => drawPanel(canvas));
    ["pointermove", "pointerdown"].forEach((kind) => canvas.addEventListener(kind, (event) => pickPoint(canvas, event)));
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (by) event.preventDefault();
      if (by) nextPoint(canvas, by);
    });
  });
  const first = data.panels[0];
  const buttons = data.sources.flatMap((name, number) => {
    const errors = first ? first.source.flatMap((of, at) => (of === number ? [Math.abs(first.predicted[at] / first.measured[at] - 1)] : [])) : [];
    if (!data.panels.some((panel) => panel.source.includes(number))) return [];
    const button = element("button", undefined, { type: "button", "aria-pressed": "false" });
    const mark = element("canvas", undefined, { "aria-hidden": "true" });
    button.append(mark, element("span", name), element("small", errors.length ? `${(100 * median(errors)).toFixed(1)} %` : ""));
    button.addEventListener("click", () => {
      plot.source = plot.source === number ? -1 : number;
      plot.point = -1;
      buttons.forEach((each) => each.setAttribute("aria-pressed", each === button && plot.source >= 0));
      repaint();
    });
    painters.push(() => {
      const { context } = fitted(mark);
      context.clearRect(0, 0, 16, 16);
      drawMark(context, 8, 8, number, 5, false);
    });
    return [button];
  });
  $("#sources")?.append(...buttons);
}
