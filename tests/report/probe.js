// What the tests ask of a page, run inside it.
globalThis.probe = {
  /** Every event of every rank, as the page's script decodes it: id, start and end in seconds, tokens. */
  decoded() {
    const step = currentStep();
    return Array.from({ length: step.ranks }, (_, rank) => {
      const own = row(bandOf(step, rank).number);
      return Array.from({ length: own.events.count }, (_, at) => {
        const event = eventOf(step, own, at);
        return [event.id, event.start * data.tick, (event.start + event.ticks) * data.tick, event.tokens];
      });
    });
  },

  /** Controls that a finger would miss. */
  small(least) {
    const controls = [...document.querySelectorAll("button, select, summary, label")];
    const shown = controls.filter((each) => each.offsetParent);
    return shown.filter((each) => each.getBoundingClientRect().height < least).map((each) => each.outerHTML);
  },

  /** How much of the forward colour is mixed into the idle one, over a rectangle of pixels; for red, green and blue. */
  share(x, y, width, height) {
    const pixels = canvas.getContext("2d").getImageData(x, y, width, height).data;
    const [forward, idle] = [rgb(tokens.f0), rgb(tokens.idle)];
    return [0, 1, 2].map((k) => {
      let sum = 0;
      for (let at = k; at < pixels.length; at += 4) sum += pixels[at];
      return ((4 * sum) / pixels.length - idle[k]) / (forward[k] - idle[k]);
    });
  },

  /** Contrast of texts with what is behind them, the lowest first: ratio, text, colours. */
  contrasts() {
    const numbers = (text) => (text.match(/[\d.]+/g) || [0, 0, 0, 0]).map(Number);
    const ground = (each) => {
      if (each.tagName === "text") {
        const rect = each.parentElement.querySelector("rect");
        if (rect) return numbers(getComputedStyle(rect).fill);
      }
      for (let at = each; at; at = at.parentElement) {
        const back = numbers(getComputedStyle(at).backgroundColor);
        if (back.length === 3 || back[3] > 0) return back.slice(0, 3);
      }
      return [255, 255, 255];
    };
    const found = [];
    for (const each of document.querySelectorAll("main *, header *, footer *")) {
      const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
      const silent = ["title", "OPTION", "CANVAS"].includes(each.tagName);
      if (!own || silent || !(each.offsetParent || each.namespaceURI.includes("svg"))) continue;
      const style = getComputedStyle(each);
      const ink = numbers(each.tagName === "text" ? style.fill : style.color).slice(0, 3);
      found.push([probe.contrast(ink, ground(each)), each.textContent.trim().slice(0, 40), ink.join(), ground(each).join()]);
    }
    return found.sort((a, b) => a[0] - b[0]);
  },

  /** Of labels on the timeline's colours. */
  inks() {
    const names = "f0 b0 w0 f1 b1 w1 f2 b2 w2 u c o d0 d1 d2 d3 d4 d5 d6 d7 s0 s1 s2 s3".split(" ");
    return names.map((name) => [probe.contrast(rgb(tokens[name]), rgb(inkOn(tokens[name]))), name]);
  },

  /** WCAG 2.1's contrast ratio of two colours. */
  contrast(one, other) {
    const light = (colour) => {
      const [r, g, b] = colour.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  },
};
