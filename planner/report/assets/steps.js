// Which step is shown: the chooser, and the pieces of the page that belong to one step.

function showStep(number) {
  const before = currentStep();
  const whole = state.t0 <= 0 && state.t1 >= wholeEnd();
  const step = stepOf(number);
  $$(".of-step").forEach((piece) => piece.classList.toggle("on", pieceOf(piece, number)));
  $$(".steps [role=radio]").forEach((button) => {
    const on = Number(button.dataset.step) === number;
    button.setAttribute("aria-checked", on);
    button.tabIndex = on ? 0 : -1;
  });
  const ranks = step.ranks === before.ranks ? {} : { r0: 0, r1: step.ranks };
  change({ step: number, event: -1, rank: Math.min(state.rank, step.ranks - 1), ...ranks });
  const end = wholeEnd();
  const beyond = state.t0 >= end - NARROWEST;
  change(whole || beyond ? { t0: 0, t1: end } : { t1: Math.min(state.t1, end) });
  chooseVisible();
}

/** The step that a measured one was predicted as. */
function predictedOf(number) {
  const first = data.steps.length - data.measured.length;
  return number < first ? number : data.measured[number - first];
}

/** Sections that know fewer steps than the timeline (measured ones have no groups) show the one that was predicted. */
function pieceOf(piece, number) {
  const own = Number(piece.dataset.step);
  const known = piece.parentElement.querySelectorAll(":scope > .of-step").length;
  return own === (number < known ? number : predictedOf(number));
}

function startSteps() {
  const buttons = $$(".steps [role=radio]");
  buttons.forEach((button) => button.addEventListener("click", () => showStep(Number(button.dataset.step))));
  $(".steps")?.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!move) return;
    event.preventDefault();
    const next = buttons[(state.step + move + buttons.length) % buttons.length];
    next.focus();
    showStep(Number(next.dataset.step));
  });
  $("#step")?.addEventListener("change", (event) => showStep(Number(event.target.value)));
}
