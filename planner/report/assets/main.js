// Sets the page going.

const THEMES = ["system", "light", "dark"];
const dark = matchMedia("(prefers-color-scheme: dark)");
let theme = "system";

function showTheme() {
  const shown = theme === "system" ? (dark.matches ? "dark" : "light") : theme;
  document.documentElement.dataset.theme = shown;
  $("#theme").textContent = `Theme: ${theme}`;
  readTheme();
  clearPaints();
  repaint();
}

function startTheme() {
  const button = $("#theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    showTheme();
  });
  dark.addEventListener("change", showTheme);
}

function startTimeline() {
  canvas = $("#timeline");
  wholeStep();
  painters.push(drawTimeline, drawMinimap, drawKey, inView);
  startSteps();
  startGestures();
  startMinimap();
  startRanks();
  $("#colour").addEventListener("change", (event) => change({ colour: event.target.value }));
  $("#path").addEventListener("change", (event) => change({ path: event.target.checked }));
  if (!data.steps.some((step) => step.path[0].length)) $("#path").closest("label").hidden = true;
  $("#in-view-details").addEventListener("toggle", repaint);
  chooseVisible();
}

/** Pictures whose parts say something when they are pointed at. */
function startBlocks() {
  $$(".block").forEach((block) => {
    const tell = () => {
      const box = block.closest(".of-step");
      $$(".block.on", box).forEach((other) => other.classList.remove("on"));
      block.classList.add("on");
      $(".say", box).textContent = $("title", block).textContent;
    };
    block.addEventListener("pointerenter", tell);
    block.addEventListener("click", tell);
  });
}

document.documentElement.classList.add("js");
startTheme();
showTheme();
if (data.steps) startTimeline();
if (data.panels) startScatter();
startBlocks();
addEventListener("resize", repaint);
repaint();
requestAnimationFrame(() => requestAnimationFrame(() => {
  document.documentElement.dataset.ready = Math.round(performance.now());
}));
