// Colours of events: by pass, by size of group, or by where the price is from.

const DIMMED = 0.2; // of what is not on the critical path, when that is shown

let paints = new Map(); // key → {fill, ink, rgb, name}

function clearPaints() {
  paints = new Map();
}

function paintOf(token, name, dimmed) {
  const key = dimmed ? `${token} dimmed` : token;
  if (!paints.has(key)) {
    const back = rgb(tokens.sheet);
    const own = rgb(tokens[token]);
    const shown = dimmed ? own.map((c, i) => Math.round(c * DIMMED + back[i] * (1 - DIMMED))) : own;
    const fill = `#${shown.map((c) => c.toString(16).padStart(2, "0")).join("")}`;
    paints.set(key, { fill, ink: dimmed ? tokens.soft : inkOn(fill), rgb: shown, name });
  }
  return paints.get(key);
}

const SOURCES = ["measured", "fitted", "published", "analytic"];
const PASSES = { F: ["f", "forward"], B: ["b", "backward"], I: ["b", "backward: inputs"], W: ["w", "backward: weights"] };
const modules = [...new Set((data.names || []).map((name) => name[2]))].sort();

/** Which colour an event has, by what is asked for, and what that colour says. */
function tokenOf(step, kind, group) {
  const [name, , , source] = data.kinds[kind];
  const [, phase, module] = data.names[name];
  if (state.colour === "source") return [`s${SOURCES.indexOf(source)}`, source];
  if (!COMPUTE.has(phase)) return phase === "offload" ? ["o", "offload"] : ["c", "communication"];
  if (phase === "update") return ["u", "update"];
  if (state.colour === "group") {
    const size = step.sizes.get(group) || 1;
    return [`d${Math.min(7, Math.floor(Math.log2(size)))}`, size === 1 ? "1 rank" : `${size} ranks`];
  }
  const hue = modules.indexOf(module) % HUES;
  const [letter, pass] = PASSES[phase];
  return [`${letter}${hue}`, modules.length > 1 ? `${module} ${pass}` : pass];
}

const WAITING = 0.38; // of a module's colour in the idle time of ranks that wait for it
const hatches = new Map(); // theme and module → pattern

/** The colour of idle time in which a rank waits for a module, where there is no room for lines. */
function waitTint(module) {
  const [own, idle] = [rgb(tokens[`b${modules.indexOf(module) % HUES}`]), rgb(tokens.idle)];
  return own.map((c, i) => c * WAITING + idle[i] * (1 - WAITING));
}

/** Lines in the colour of the module that is waited for. */
function hatch(context, module) {
  const key = `${tokens.page}/${module}`;
  if (!hatches.has(key)) {
    const tile = document.createElement("canvas");
    Object.assign(tile, { width: 8, height: 8 });
    const pen = tile.getContext("2d");
    pen.fillStyle = tokens.idle;
    pen.fillRect(0, 0, 8, 8);
    pen.strokeStyle = tokens[`b${modules.indexOf(module) % HUES}`];
    pen.lineWidth = 2;
    for (const x of [-8, 0, 8]) {
      pen.beginPath();
      pen.moveTo(x - 2, 10);
      pen.lineTo(x + 10, -2);
      pen.stroke();
    }
    hatches.set(key, context.createPattern(tile, "repeat"));
  }
  return hatches.get(key);
}

let ofKinds = []; // colours by kind, in a frame in which nothing else decides them

/** Whether a kind by itself decides a colour. */
const byKind = () => state.colour !== "group" && !state.path;

function paint(step, ofRow, at) {
  const { kinds, rows, slots } = ofRow.events;
  if (byKind()) return (ofKinds[kinds[at]] ||= paintOf(...tokenOf(step, kinds[at], 0), false));
  const group = ofRow.groups[slots[at]];
  const [token, name] = tokenOf(step, kinds[at], group);
  const dimmed = state.path && !step.path.has(pathKey(data.kinds[kinds[at]][0], rows[at], group));
  return paintOf(token, name, dimmed);
}
