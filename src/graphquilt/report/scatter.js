// The map of an embedding on a canvas: colour, hover, search, neighbours, zoom and pan by pointer, wheel, touch and keys.
"use strict";
function scatter(container, map) {
  const { make, fill, count, number } = Page;
  const n = map.x.length, NONE = -1, LEVELS = 32, SHOWN = 20;
  const name = (k) => (map.ids ? map.ids[k] : String(map.rows ? map.rows[k] : k));
  let view = begin(), colouring = map.colours[0] || null, only = null, selected = NONE, hovered = NONE;
  let width = 0, height = 0, buckets = [], waiting = false;

  // At first most nodes fill the map; a few that lie far out are seen with "Show everything".
  function begin() {
    if (n < 3) return { zoom: 1, x: 0.5, y: 0.5 };
    const [x, y] = [map.x, map.y].map((values) => { const sorted = Float32Array.from(values).sort(), at = (t) => sorted[Math.floor(t * (n - 1))] / 65535; return [at(0.01), at(0.99)]; });
    const span = Math.max(x[1] - x[0], y[1] - y[0], 0.02);
    return { zoom: Math.min(4, Math.max(1, 0.86 / span)), x: (x[0] + x[1]) / 2, y: (y[0] + y[1]) / 2 };
  }

  // Elements.
  const canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": "map of the embedding; arrow keys move it, plus and minus zoom, 0 shows everything" });
  const legend = make("div", { class: "legend" }), about = make("p", { class: "note", "aria-live": "polite" });
  const choose = Page.choice("colour by", map.colours.map((colour) => ({ value: colour.name, title: colour.name })), (value) => {
    colouring = map.colours.find((colour) => colour.name === value); only = null; sortPoints(); paintLegend(); draw();
  });
  const find = Page.search("search an id", found, select, () => select(NONE));
  const reset = make("button", { type: "button", class: "quiet", onclick: () => { view = { zoom: 1, x: 0.5, y: 0.5 }; select(NONE); find.input.value = ""; } }, "Show everything");
  const plot = make("div", { class: "plot" }, canvas);
  container.append(make("div", { class: "tools" }, map.colours.length > 1 ? choose : null, find, reset), plot, legend, about);

  // Places: 0 to 65535 on both axes, in one scale; side is the length of that square on the screen.
  const side = () => Math.min(width, height) * 0.92 * view.zoom;
  const left = (k) => width / 2 + (map.x[k] / 65535 - view.x) * side();
  const top = (k) => height / 2 - (map.y[k] / 65535 - view.y) * side();

  // A grid over the map finds the point under the pointer without looking at all of them.
  const CELLS = 128, heads = new Int32Array(CELLS * CELLS).fill(NONE), next = new Int32Array(n);
  const cell = (v) => Math.min(CELLS - 1, Math.max(0, Math.floor((v / 65536) * CELLS)));
  for (let k = 0; k < n; k++) { const c = cell(map.y[k]) * CELLS + cell(map.x[k]); next[k] = heads[c]; heads[c] = k; }
  function nearest(px, py, reach) {
    const s = side(), x = (view.x + (px - width / 2) / s) * 65535, y = (view.y - (py - height / 2) / s) * 65535, r = (reach / s) * 65535;
    let best = NONE, distance = r * r;
    for (let i = cell(y - r); i <= cell(y + r); i++) for (let j = cell(x - r); j <= cell(x + r); j++) {
      for (let k = heads[i * CELLS + j]; k !== NONE; k = next[k]) {
        const d = (map.x[k] - x) ** 2 + (map.y[k] - y) ** 2;
        if (d <= distance && !(only !== null && colouring.values[k] !== only)) { distance = d; best = k; }
      }
    }
    return best;
  }

  // Points in the order of their colours: each colour is set once. The largest numbers come last, on top.
  function sortPoints() {
    const groups = new Map(), none = colouring && colouring.none;
    for (let k = 0; k < n; k++) {
      let key = NONE;
      if (colouring && colouring.values[k] !== none) key = colouring.kind === "number" ? Math.floor((colouring.values[k] / none) * LEVELS) : colouring.values[k];
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(k);
    }
    buckets = [...groups].sort((a, b) => a[0] - b[0]).map(([key, points]) => ({ key, points }));
  }
  const paint = (key) => (key === NONE ? Page.colour("soft") : colouring.kind === "number" ? Page.ramp((key + 0.5) / LEVELS) : Page.category(key));
  const colourOf = (k) => paint(!colouring || colouring.values[k] === colouring.none ? NONE : colouring.kind === "number" ? Math.floor((colouring.values[k] / colouring.none) * LEVELS) : colouring.values[k]);
  const neighbours = (k) => (map.neighbours ? Array.from(map.neighbours.subarray(k * map.n_neighbours, (k + 1) * map.n_neighbours)) : []);

  function draw() { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; render(); }); } }
  function render() {
    if (!width) return;
    const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    if (canvas.width !== Math.round(width * ratio)) { canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio); }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    drawDensity(pen);
    const base = n < 1500 ? 3.4 : n < 6000 ? 2.4 : n < 30000 ? 1.6 : 1.05, r = Math.min(6, base * Math.min(3, view.zoom ** 0.4)), round = r > 1.5;
    for (const { key, points } of buckets) {
      pen.fillStyle = paint(key);
      const faint = selected !== NONE || (only !== null && key !== only);
      pen.globalAlpha = faint ? 0.16 : key === NONE && colouring ? 0.35 : n > 30000 ? 0.6 : 0.82;
      pen.beginPath();
      for (const k of points) {
        const px = left(k), py = top(k);
        if (px < -r || py < -r || px > width + r || py > height + r) continue;
        if (round) { pen.moveTo(px + r, py); pen.arc(px, py, r, 0, 6.2832); } else pen.rect(px - r, py - r, 2 * r, 2 * r);
      }
      pen.fill();
    }
    pen.globalAlpha = 1;
    if (selected !== NONE) drawSelected(pen, r);
    if (hovered !== NONE) ring(pen, hovered, r + 3.5, 2);
  }
  function ring(pen, k, r, thick) {
    pen.strokeStyle = Page.colour("ink"); pen.lineWidth = thick;
    pen.beginPath(); pen.arc(left(k), top(k), r, 0, 6.2832); pen.stroke();
  }
  function disc(pen, k, r) { pen.fillStyle = colourOf(k); pen.beginPath(); pen.arc(left(k), top(k), r, 0, 6.2832); pen.fill(); ring(pen, k, r, 1.2); }
  function drawSelected(pen, r) {
    pen.strokeStyle = Page.colour("soft"); pen.lineWidth = 1;
    const near = neighbours(selected);
    for (const k of near) { pen.beginPath(); pen.moveTo(left(selected), top(selected)); pen.lineTo(left(k), top(k)); pen.stroke(); }
    for (const k of near) disc(pen, k, r + 1.5);
    disc(pen, selected, r + 3);
    ring(pen, selected, r + 7, 2);
    const text = name(selected).length > 40 ? `${name(selected).slice(0, 39)}…` : name(selected);
    pen.font = "600 13px system-ui, sans-serif";
    const wide = pen.measureText(text).width, x = Math.min(Math.max(left(selected) + r + 12, 6), width - wide - 10), y = Math.min(Math.max(top(selected), 18), height - 14);
    pen.fillStyle = Page.colour("card"); pen.globalAlpha = 0.88; pen.fillRect(x - 5, y - 12, wide + 10, 22); pen.globalAlpha = 1;
    pen.fillStyle = Page.colour("ink"); pen.fillText(text, x, y + 4);
  }

  // All nodes of a large graph as shades, behind the sample that is drawn as points.
  let shades = null;
  function makeShades() {
    if (!map.density) return;
    const g = Math.round(Math.sqrt(map.density.length));
    shades = make("canvas", { width: g, height: g });
    const pen = shades.getContext("2d"), image = pen.createImageData(g, g), dark = Page.theme() === "dark" ? 200 : 60;
    for (let k = 0; k < g * g; k++) { const at = 4 * k; image.data[at] = dark; image.data[at + 1] = dark + 20; image.data[at + 2] = dark + 50; image.data[at + 3] = map.density[k] * 0.7; }
    pen.putImageData(image, 0, 0);
  }
  function drawDensity(pen) {
    if (!shades) return;
    const s = side();
    pen.imageSmoothingEnabled = true;
    pen.drawImage(shades, width / 2 - view.x * s, height / 2 - (1 - view.y) * s, s, s);
  }

  function paintLegend() {
    if (!colouring) { fill(legend); return; }
    const none = colouring.absent ? make("span", {}, make("i", { style: "background:var(--soft);opacity:.5" }), colouring.absent) : null;
    if (colouring.kind === "number") { fill(legend, Page.rampLegend(number(colouring.low), number(colouring.high) + (colouring.clipped ? " or more" : "")), ...(none ? [none] : [])); return; }
    const entries = colouring.names.slice(0, SHOWN).map((label, key) => make("button", { type: "button", "aria-pressed": only === key, title: "show only these", onclick: () => { only = only === key ? null : key; paintLegend(); draw(); } }, make("i", { style: `background:${Page.category(key)}` }), label.length > 32 ? `${label.slice(0, 31)}…` : label));
    const rest = colouring.names.length - SHOWN;
    fill(legend, ...entries, ...(rest > 0 ? [make("span", {}, `and ${count(rest)} more`)] : []), ...(none ? [none] : []));
  }

  // Ids: those that begin with the text come first, then those that contain it.
  function found(text) {
    const low = text.toLowerCase(), begin = [], inside = [];
    for (let k = 0; k < n && begin.length < 12; k++) {
      const at = name(k).toLowerCase().indexOf(low);
      if (at === 0) { if (name(k).length === text.length) begin.unshift(k); else begin.push(k); } else if (at > 0 && inside.length < 12) inside.push(k);
    }
    return [...begin, ...inside].slice(0, 12).map((k) => ({ text: name(k), value: k }));
  }
  function select(k) {
    selected = k;
    if (k !== NONE && (left(k) < 30 || left(k) > width - 30 || top(k) < 30 || top(k) > height - 30)) view = { ...view, x: map.x[k] / 65535, y: map.y[k] / 65535 };
    describe();
    draw();
  }
  function describe() {
    if (selected === NONE) { fill(about, map.about || ""); return; }
    const near = neighbours(selected);
    const links = near.map((k) => make("button", { type: "button", class: "neighbour", onclick: () => { find.input.value = name(k); select(k); } }, name(k)));
    fill(about, make("b", {}, name(selected)), ...facts(selected).map((fact) => ` · ${fact}`), near.length ? make("span", { class: "near" }, "Nearest in the embedding: ", ...links) : "");
  }
  function facts(k) {
    const lines = map.colours.map((colour) => {
      const value = colour.values[k];
      if (value === colour.none) return colour.absent ? `${colour.name}: ${colour.absent}` : null;
      if (colour.kind === "number") return `${colour.name} ${number(colour.low + (value / (colour.none - 1)) * (colour.high - colour.low))}${colour.clipped && value === colour.none - 1 ? " or more" : ""}`;
      return colour.names[value].startsWith(`${colour.name} `) ? colour.names[value] : `${colour.name} ${colour.names[value]}`;
    });
    if (map.copies) lines.push(map.copies[k] === 1 ? "in 1 patch" : `in ${map.copies[k]} patches`);
    return lines.filter(Boolean);
  }

  // Pointers: one drags, two pinch, a short press selects.
  const pointers = new Map();
  let moved = 0;
  const place = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  function zoomAt(px, py, factor) {
    const zoom = Math.min(400, Math.max(0.5, view.zoom * factor)), s = side(), ratio = zoom / view.zoom;
    const x = view.x + (px - width / 2) / s, y = view.y - (py - height / 2) / s;
    view = { zoom, x: x - (x - view.x) / ratio, y: y - (y - view.y) / ratio };
    draw();
  }
  function pan(dx, dy) { const s = side(); view = { ...view, x: view.x - dx / s, y: view.y + dy / s }; draw(); }
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoomAt(...place(event), Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016))); }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); pointers.set(event.pointerId, place(event)); if (pointers.size === 1) moved = 0; });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = place(event), before = pointers.get(event.pointerId);
    if (!before) { hover(px, py, event); return; }
    if (pointers.size === 2) {
      const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const gap = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]) || 1;
      zoomAt((px + other[0]) / 2, (py + other[1]) / 2, gap([px, py]) / gap(before));
    } else pan(px - before[0], py - before[1]);
    moved += Math.abs(px - before[0]) + Math.abs(py - before[1]);
    pointers.set(event.pointerId, [px, py]);
    if (moved > 4) Page.tooltip.hide();
  });
  const release = (event) => {
    if (!pointers.delete(event.pointerId) || moved > 4 || event.type !== "pointerup") return;
    const k = nearest(...place(event), event.pointerType === "touch" ? 18 : 9);
    find.input.value = k === NONE ? "" : name(k);
    select(k);
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointerleave", () => { hovered = NONE; Page.tooltip.hide(); draw(); });
  function hover(px, py, event) {
    const k = nearest(px, py, 9);
    if (k === NONE) Page.tooltip.hide(); else Page.tooltip.show(event.clientX, event.clientY, name(k), ...facts(k));
    canvas.style.cursor = k === NONE ? "grab" : "pointer";
    if (k !== hovered) { hovered = k; draw(); }
  }
  canvas.addEventListener("dblclick", (event) => zoomAt(...place(event), 2));
  canvas.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[event.key];
    const factor = { "+": 1.4, "=": 1.4, "-": 1 / 1.4 }[event.key];
    if (move) pan(...move); else if (factor) zoomAt(width / 2, height / 2, factor); else if (event.key === "0") reset.click(); else if (event.key === "Escape") select(NONE); else return;
    event.preventDefault();
  });

  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    height = Math.round(Math.max(Math.min(width * 0.6, 640), Math.min(width, 340)));
    canvas.style.height = `${height}px`;
    canvas.width = 0;
    draw();
  }).observe(plot);
  Page.onTheme(() => { makeShades(); draw(); });
  sortPoints(); paintLegend(); makeShades(); describe();
  return { select: (k) => { find.input.value = name(k); select(k); }, colourBy: (value) => { if (map.colours.some((colour) => colour.name === value)) { choose.choose(value); } }, showOnly: (key) => { only = key; paintLegend(); draw(); } };
}
