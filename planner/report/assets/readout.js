// What is said of the chosen task, the key of colours, and the tasks in view as a table.

const ITEMS = 12; // named; the rest is counted
const LISTED = 40; // characters of a list of ranks; a longer one is counted
const IN_VIEW = 200; // lines

function say(aloud) {
  const box = $("#readout");
  box.setAttribute("aria-live", aloud ? "polite" : "off");
  const step = currentStep();
  const band = bandOf(step, state.rank);
  const ofRow = row(band.number);
  const wait = ofRow && state.event < 0 ? waitAt(ofRow, state.tick) : null;
  if (wait) {
    const [from, until] = [wait.start, wait.end].map((tick) => duration(tick * data.tick, 3));
    const long = duration((wait.end - wait.start) * data.tick, 3);
    box.replaceChildren(element("p", `Rank ${state.rank} waits for ${wait.module}: ${long}, from ${from} to ${until}, ${step.label}.`, { class: "note" }));
    return;
  }
  if (!ofRow || state.event < 0) {
    box.replaceChildren(element("p", `Rank ${state.rank}: nothing runs here.`, { class: "note" }));
    return;
  }
  const event = eventOf(step, ofRow, state.event);
  const list = element("dl");
  const put = (name, value, wide) => {
    const pair = element("div", undefined, wide ? { class: "wide" } : {});
    pair.append(element("dt", name), typeof value === "string" ? element("dd", value) : value);
    list.append(pair);
  };
  const id = element("dd");
  id.append(element("code", event.id));
  put("task", id, true);
  const same = band.count > 1 ? ` (${band.first}-${band.first + band.count - 1} do the same)` : "";
  put("rank", `${state.rank}${same}`);
  const size = step.sizes.get(event.group) || 1;
  const ranks = (data.ranksOf[data.groups[event.group]] || "").replace(/,/g, ", ");
  const who = ranks && ranks.length <= LISTED ? `ranks ${ranks}` : size > 1 ? `${size} ranks` : "";
  const run = runAt(ofRow, event.microBatch);
  if (run) put("micro-batches drawn as one", run);
  put("group", `${data.groups[event.group]}${who ? `: ${who}` : ""}`);
  put(`start, ${step.label}`, duration(event.start * data.tick, 3));
  const spread = event.spread ? ` ± ${(event.spread / 10).toFixed(1)} %` : "";
  put(`duration, ${step.label}`, `${duration(event.ticks * data.tick, 3)}${spread}`);
  if (event.comm) put("of it waiting for communication", duration(event.comm * data.tick, 3));
  put(step.label === "measured" ? "source" : "priced by", event.source);
  put("tokens", event.tokens.toLocaleString("en"));
  if (event.items[0].length) put(`${event.items[0].length === 1 ? "1 item" : `${event.items[0].length} items`}: sample (tokens)`, itemsText(event.items), true);
  box.replaceChildren(list);
}

function itemsText([items, sizes]) {
  const order = items.map((item, i) => [item, sizes[i]]).sort((a, b) => b[1] - a[1]);
  const named = order.slice(0, ITEMS).map(([item, size]) => `${item} (${size.toLocaleString("en")})`).join(", ");
  return order.length > ITEMS ? `${named}, and ${order.length - ITEMS} no longer` : named;
}

let keyed = "";

/** The colours in use in this step. */
function drawKey() {
  const step = currentStep();
  const key = [state.step, state.colour, state.path, tokens.page].join();
  if (key === keyed) return;
  keyed = key;
  const names = new Map();
  let waits = false;
  const seen = new Set();
  const waited = new Set();
  for (const band of step.bands) {
    const ofRow = row(band.number);
    if (!ofRow || seen.has(band.number)) continue;
    seen.add(band.number);
    ofRow.waits.forEach((wait) => waited.add(wait.module));
    for (let at = 0; at < ofRow.events.count; at++) {
      const kind = ofRow.events.kinds[at];
      if (data.kinds[kind][1] <= 0) continue;
      const [token, name] = tokenOf(step, kind, ofRow.groups[ofRow.events.slots[at]]);
      names.set(name, token);
      waits ||= ofRow.events.compute[at] && data.kinds[kind][2] > 0;
    }
  }
  const place = ([, token]) => 10 * "fbwdsuoc".indexOf(token[0]) + (token[0] === "d" ? 9 - token[1] : Number(token[1] || 0));
  const sorted = [...names].sort((a, b) => place(a) - place(b));
  if (waits && state.colour !== "source" && !names.has("communication")) sorted.push(["waiting for communication", "c"]);
  if (!state.path) [...waited].sort().forEach((module) => sorted.push([`waits for ${module}`, `wait ${module}`]));
  sorted.push(["idle", "idle"]);
  $("#key").replaceChildren(...sorted.map(([name, token]) => {
    const item = element("li");
    const mark = element("i");
    const hue = tokens[`b${modules.indexOf(token.slice(5)) % HUES}`];
    const lines = `repeating-linear-gradient(135deg, ${hue} 0 2px, ${tokens.idle} 2px 6px)`;
    mark.style.background = token.startsWith("wait ") ? lines : tokens[token];
    if (token === "idle") mark.className = "idle";
    item.append(mark, name);
    return item;
  }));
}

function inView() {
  const details = $("#in-view-details");
  if (!details.open) return;
  const step = currentStep();
  const ofRow = row(bandOf(step, state.rank).number);
  const body = element("tbody");
  let more = 0;
  if (ofRow) {
    const { events } = ofRow;
    for (let at = firstAfter(events, state.t0); at < events.count && events.start[at] < state.t1; at++) {
      if (body.childElementCount >= IN_VIEW) more++;
      else body.append(line(eventOf(step, ofRow, at)));
    }
  }
  const head = element("tr");
  for (const name of ["task", "start, s", "duration, ms", "waits, ms", "tokens", "source"]) {
    head.append(element("th", name, { scope: "col", class: ["task", "source"].includes(name) ? "" : "num" }));
  }
  const top = element("thead");
  top.append(head);
  const table = element("table");
  table.append(element("caption", `Rank ${state.rank} of ${step.title}, ${step.label}${more ? `; ${more} more: zoom in` : ""}`), top, body);
  const box = element("div", undefined, { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tasks in view" });
  box.append(table);
  $("#in-view").replaceChildren(box);
}

function line(event) {
  const made = element("tr");
  const name = element("th", undefined, { scope: "row" });
  name.append(element("code", event.id));
  made.append(name);
  const numbers = [(event.start * data.tick).toFixed(6), (event.ticks * data.tick * 1e3).toFixed(3), (event.comm * data.tick * 1e3).toFixed(3),
    event.tokens.toLocaleString("en")];
  numbers.forEach((text) => made.append(element("td", text, { class: "num" })));
  made.append(element("td", event.source));
  return made;
}
