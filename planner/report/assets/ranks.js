// The chosen rank in the bars below, and its memory over time in the window of the timeline.

function startRanks() {
  $$(".bars").forEach((bars) => {
    bars.addEventListener("click", (event) => {
      const box = bars.getBoundingClientRect();
      const count = Number(bars.dataset.ranks);
      chooseRank(clamp(Math.floor(((event.clientX - box.left) / box.width) * count), 0, count - 1));
    });
  });
  painters.push(() => {
    $$(".of-step.on .bars .chosen").forEach((mark) => {
      mark.setAttribute("x", state.rank);
      mark.setAttribute("width", 1);
    });
  });
  if ($("#memory")) painters.push(drawMemory);
}

/** The rank's curve: ticks and bytes. A measured step shows what was predicted for it. */
function curveOf(step) {
  const own = stepOf(predictedOf(state.step));
  if (!own.memory) return null;
  const found = own.memory.find(([first, count]) => state.rank >= first && state.rank < first + count);
  if (!found) return null;
  const [times, held] = data.curves[found[2]];
  return { times: summed(times), held: Float64Array.from(held, ((sum) => (kib) => (sum += kib))(0)) };
}

function drawMemory() {
  const { context, width, height } = fitted($("#memory"));
  const step = currentStep();
  const curve = curveOf(step);
  context.fillStyle = tokens.sheet;
  context.fillRect(0, 0, width, height);
  if (!curve) return;
  const GIB = 2 ** 20; // KiB
  const cap = data.caps[data.caps.length - 1] || 0;
  const peak = curve.held.reduce((a, b) => Math.max(a, b), 0);
  const top = 1.1 * Math.max(peak, cap) || 1;
  const y = (kib) => height - 10 - (kib / top) * (height - 10 - AXIS);
  drawAxis(context, width, height - 10);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER - MARGIN, height);
  context.clip();
  context.beginPath();
  context.moveTo(GUTTER, y(0));
  let last = null;
  for (let i = 0; i < curve.times.length; i++) {
    const x = toX(curve.times[i], width);
    if (last !== null) context.lineTo(x, y(last));
    else context.lineTo(Math.max(x, GUTTER - 1), y(curve.held[i]));
    context.lineTo(x, y(curve.held[i]));
    last = curve.held[i];
  }
  const end = toX(step.end, width);
  context.lineTo(end, y(last));
  context.lineTo(end, y(0));
  context.closePath();
  context.fillStyle = tokens.f0;
  context.fill();
  context.strokeStyle = tokens.b0;
  context.lineWidth = 1.5;
  context.stroke();
  context.setLineDash([6, 4]);
  context.strokeStyle = tokens.cap;
  context.lineWidth = 2;
  for (const each of data.caps) {
    context.beginPath();
    context.moveTo(GUTTER, y(each));
    context.lineTo(width - MARGIN, y(each));
    context.stroke();
  }
  context.restore();
  context.font = `12px ${FONT}`;
  context.textAlign = "right";
  context.fillStyle = tokens.soft;
  for (const each of ticks(0, top / GIB, 3)) context.fillText(`${each} GiB`, GUTTER - 6, y(each * GIB) + 4);
  $("#memory-of").textContent = `Rank ${state.rank} over time, simulated: at most ${(peak / GIB).toFixed(2)} GiB`;
}
