// The whole of a long step in one strip, with the window in it: press or drag to move the window.

const STRIP = 28; // px
let strip = { key: "", picture: null }; // drawn once for a step, its colours and a width

/** Whether a row of the step has more events than the timeline has pixels. */
const isLong = (step, width) => step.bands.some(({ number }) => number >= 0 && row(number).events.count > width);

function drawMinimap() {
  const map = $("#minimap");
  const step = currentStep();
  map.hidden = !isLong(step, canvas.getBoundingClientRect().width);
  if (map.hidden) return;
  const { context, width, height, ratio } = fitted(map);
  const across = width - GUTTER - MARGIN;
  const top = (height - STRIP) / 2;
  context.fillStyle = tokens.sheet;
  context.fillRect(0, 0, width, height);
  context.drawImage(wholePicture(step, Math.max(1, Math.round(across * ratio)), Math.round(STRIP * ratio)), GUTTER, top, across, STRIP);
  const [x0, x1] = [state.t0, state.t1].map((tick) => GUTTER + (tick / wholeEnd()) * across);
  context.fillStyle = tokens.sheet;
  context.globalAlpha = 0.6;
  context.fillRect(GUTTER, top, x0 - GUTTER, STRIP);
  context.fillRect(x1, top, GUTTER + across - x1, STRIP);
  context.globalAlpha = 1;
  context.strokeStyle = tokens.mark;
  context.lineWidth = 2;
  context.strokeRect(x0, top - 2, Math.max(3, x1 - x0), STRIP + 4);
}

function wholePicture(step, across, high) {
  const key = [state.step, state.colour, state.path, tokens.page, across, high].join();
  if (strip.key !== key) {
    const view = viewOf({ t0: 0, t1: wholeEnd(), r0: 0, r1: step.ranks });
    const picture = document.createElement("canvas");
    Object.assign(picture, { width: across, height: high });
    picture.getContext("2d").putImageData(mixedImage(step, linesOf(step, high, view), across, view), 0, 0);
    strip = { key, picture };
  }
  return strip.picture;
}

function startMinimap() {
  const map = $("#minimap");
  const centre = (event) => {
    const box = map.getBoundingClientRect();
    const tick = clamp((event.clientX - box.left - GUTTER) / (box.width - GUTTER - MARGIN), 0, 1) * wholeEnd();
    moveBy(tick - (state.t0 + state.t1) / 2, 0);
  };
  map.addEventListener("pointerdown", (event) => {
    map.setPointerCapture?.(event.pointerId);
    centre(event);
  });
  map.addEventListener("pointermove", (event) => {
    if (event.buttons) centre(event);
  });
}
