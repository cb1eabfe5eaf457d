// The patch graph on a canvas, its edges coloured by error, and both sides of one overlap before and after alignment.
"use strict";
function quilt(container, graph, showPatch) {
  const { make, fill, count, number } = Page;
  const p = graph.x.length, m = graph.first.length, NONE = -1, aligned = Boolean(graph.errors);
  const FAIR = 0.3, BAD = 0.7; // the limits that the verdict uses
  const largest = Math.max(...graph.sizes), few = p <= 60;
  let width = 0, height = 0, chosen = NONE, over = NONE, waiting = false;

  const canvas = make("canvas", { role: "img", "aria-label": "patch graph; the table of overlaps can be used with the keyboard" });
  const plot = make("div", { class: "plot" }, canvas), panel = make("div", { "aria-live": "polite" });
  const legend = make("div", { class: "legend" });
  if (aligned) legend.append(make("span", {}, "error left on an overlap ", Page.rampLegend("0", "1")));
  else legend.append(make("span", {}, make("i", { style: "background:var(--accent)" }), "embedded"), make("span", {}, make("i", { style: "background:var(--line)" }), "not yet"));
  const word = (error) => (error <= FAIR ? "good" : error <= BAD ? "fair" : "bad");
  const rows = Array.from({ length: m }, (_, k) => k);
  const columns = [
    { title: "overlap", value: (k) => graph.first[k] * 1e6 + graph.second[k], show: (k) => `${graph.first[k]} – ${graph.second[k]}` },
    { title: "shared nodes", value: (k) => graph.overlaps[k], numeric: true, show: (k) => count(graph.overlaps[k]) },
  ];
  if (aligned) columns.push({ title: "error", value: (k) => graph.errors[k], numeric: true, show: (k) => make("span", { class: `tag ${word(graph.errors[k])}` }, graph.errors[k].toFixed(3)) });
  const table = Page.table({ label: "overlaps", columns, rows, pick: (k) => choose(k, true), sort: aligned ? 2 : 1, descending: true, limit: 300 });
  const left = make("div", {}, plot, legend), right = make("div", {}, panel, make("div", { class: "overlaps" }, table));
  container.append(make("div", { class: "columns wide-left" }, left, right));

  const px = (k) => 26 + (graph.x[k] / 65535) * (width - 52), py = (k) => 26 + (1 - graph.y[k] / 65535) * (height - 52);
  const radius = (k) => (few ? 6 + 13 * Math.sqrt(graph.sizes[k] / largest) : Math.max(1.6, (9 * Math.sqrt(graph.sizes[k] / largest)) / Math.sqrt(p / 60)));
  function draw() { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; render(); }); } }
  function line(pen, k) { pen.beginPath(); pen.moveTo(px(graph.first[k]), py(graph.first[k])); pen.lineTo(px(graph.second[k]), py(graph.second[k])); pen.stroke(); }
  function render() {
    if (!width) return;
    const ratio = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const thick = few ? 3 : m < 1500 ? 1.6 : 0.8;
    for (let k = m - 1; k >= 0; k--) { // the worst are first in the data, and drawn last
      pen.strokeStyle = aligned ? Page.ramp(graph.errors[k]) : Page.colour("soft");
      pen.lineWidth = thick;
      pen.globalAlpha = !aligned ? 0.45 : m > 1500 ? 0.55 : 0.9;
      pen.setLineDash(graph.doubted && graph.doubted[k] ? [4, 4] : []);
      line(pen, k);
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
    for (const k of [over, chosen]) if (k !== NONE) {
      pen.strokeStyle = Page.colour("ink"); pen.lineWidth = thick + 4; line(pen, k);
      pen.strokeStyle = aligned ? Page.ramp(graph.errors[k]) : Page.colour("soft"); pen.lineWidth = thick + 1; line(pen, k);
    }
    pen.textAlign = "center"; pen.textBaseline = "middle"; pen.font = "600 11px system-ui, sans-serif";
    for (let k = 0; k < p; k++) {
      pen.fillStyle = graph.done[k] ? (few ? Page.colour("card") : Page.colour("ink")) : Page.colour("line");
      pen.strokeStyle = !aligned && graph.done[k] ? Page.colour("accent") : Page.colour("soft"); pen.lineWidth = !aligned && graph.done[k] ? 2.5 : 1.3;
      pen.beginPath(); pen.arc(px(k), py(k), radius(k), 0, 6.2832); pen.fill(); if (few) pen.stroke();
      if (few && radius(k) > 8) { pen.fillStyle = Page.colour("ink"); pen.fillText(String(k), px(k), py(k) + 0.5); }
    }
  }
  function patchAt(x, y) { for (let k = p - 1; k >= 0; k--) if (Math.hypot(px(k) - x, py(k) - y) <= radius(k) + 2) return k; return NONE; }
  function edgeAt(x, y) {
    let best = NONE, least = 7;
    for (let k = 0; k < m; k++) {
      const ax = px(graph.first[k]), ay = py(graph.first[k]), bx = px(graph.second[k]) - ax, by = py(graph.second[k]) - ay;
      const t = Math.min(1, Math.max(0, ((x - ax) * bx + (y - ay) * by) / (bx * bx + by * by || 1))), d = Math.hypot(x - ax - t * bx, y - ay - t * by);
      if (d < least) { least = d; best = k; }
    }
    return best;
  }
  const at = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointermove", (event) => {
    const patch = patchAt(...at(event)), edge = patch === NONE ? edgeAt(...at(event)) : NONE;
    if (patch !== NONE) Page.tooltip.show(event.clientX, event.clientY, `patch ${patch}`, `${count(graph.sizes[patch])} nodes`, graph.done[patch] ? "embedded" : "not embedded yet");
    else if (edge !== NONE) Page.tooltip.show(event.clientX, event.clientY, `patches ${graph.first[edge]} and ${graph.second[edge]}`, `${count(graph.overlaps[edge])} shared nodes`, ...(aligned ? [`error ${number(graph.errors[edge])}`] : []));
    else Page.tooltip.hide();
    canvas.style.cursor = patch !== NONE || edge !== NONE ? "pointer" : "default";
    if (edge !== over) { over = edge; draw(); }
  });
  canvas.addEventListener("pointerleave", () => { over = NONE; Page.tooltip.hide(); draw(); });
  canvas.addEventListener("click", (event) => {
    const patch = patchAt(...at(event));
    if (patch !== NONE) { showPatch(patch); return; }
    const edge = edgeAt(...at(event));
    if (edge !== NONE) { table.choose(edge); choose(edge); }
  });
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width || now === 0) return;
    width = now;
    height = Math.round(Math.max(300, Math.min(width * 0.86, 620)));
    canvas.style.height = `${height}px`;
    draw();
  }).observe(plot);
  Page.onTheme(() => { draw(); });

  // Both sides of one overlap.
  function choose(k) {
    chosen = k;
    draw();
    fill(panel);
    const title = make("h3", {}, `Patches ${graph.first[k]} and ${graph.second[k]}`);
    panel.append(title, make("p", { class: "note" }, `They share ${count(graph.overlaps[k])} nodes.`, aligned ? ` Error after alignment: ${number(graph.errors[k])}.` : "", graph.doubted && graph.doubted[k] ? " Robust alignment doubts this overlap." : ""));
    const view = graph.views && graph.view[k] >= 0 ? graph.views[graph.view[k]] : null;
    if (!view) { panel.append(make("p", { class: "empty" }, aligned ? "The picture of this overlap is not part of the page, which has those of the worst overlaps and of some others." : "The overlap can be seen once the patches are aligned.")); return; }
    const sides = make("div", { class: "sides" });
    panel.append(sides, make("div", { class: "legend" }, make("span", {}, make("i", { style: `background:${Page.category(0)}` }), `patch ${graph.first[k]}`), make("span", {}, make("i", { style: `background:${Page.category(1)}` }), `patch ${graph.second[k]}`), make("span", {}, "a line joins the two places of a node")));
    draw2(sides, "before alignment", view.before, view.gap_before, view.ids);
    draw2(sides, "after alignment", view.after, view.gap_after, view.ids);
    if (graph.moves_nothing) panel.append(make("p", { class: "note" }, "All patches lie in one frame from the start, so alignment moved nothing."));
  }
  function draw2(box, title, places, gap, ids) {
    const n = ids.length, holder = make("div", {});
    box.append(holder);
    holder.append(make("h3", {}, title), make("p", { class: "note" }, `distance of the two sides ${number(gap, 2)}`));
    Page.picture(holder, (w) => {
      const svg = make("svg", { width: w, height: w, viewBox: `0 0 ${w} ${w}`, role: "img", "aria-label": `shared nodes ${title}`, class: "side" });
      const x = (i) => 8 + (places[2 * i] / 65535) * (w - 16), y = (i) => w - 8 - (places[2 * i + 1] / 65535) * (w - 16);
      for (let i = 0; i < n; i++) svg.append(make("line", { x1: x(i), y1: y(i), x2: x(n + i), y2: y(n + i), stroke: "var(--soft)", "stroke-width": 0.8, opacity: 0.55 }));
      for (let i = 0; i < 2 * n; i++) {
        const dot = make("circle", { cx: x(i), cy: y(i), r: 3.2, fill: Page.category(i < n ? 0 : 1), "fill-opacity": 0.85 });
        dot.addEventListener("pointermove", (event) => Page.tooltip.show(event.clientX, event.clientY, ids[i % n], `in patch ${i < n ? graph.first[chosen] : graph.second[chosen]}`));
        dot.addEventListener("pointerleave", Page.tooltip.hide);
        svg.append(dot);
      }
      return svg;
    });
  }
  if (m) { table.choose(0); choose(0); } else panel.append(make("p", { class: "empty" }, "One patch: no overlaps."));
}
