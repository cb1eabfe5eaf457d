// The report of a job.
"use strict";
(() => {
  const { data, byId, make, fill, count, number, bytes, duration } = Page;
  const hide = (id) => { byId(id).hidden = true; };

  byId("title").textContent = data.name;
  byId("lead").textContent = `Report of a graphquilt job, made ${data.made} with graphquilt ${data.version}.`;
  for (const [what, value] of data.facts) byId("facts").append(make("li", {}, make("b", {}, count(value)), make("span", {}, what)));

  // The verdict: one word and its sentence first, then the rest.
  const KINDS = { Good: "good", Fair: "fair", Doubtful: "bad", Bad: "bad" };
  function verdict() {
    const box = byId("words"), section = byId("verdict");
    if (!data.fit.length) {
      section.classList.add("fair");
      const done = data.wanted ? `${count(data.embedded)} of ${count(data.wanted)} patches are embedded.` : "The graph is not cut into patches yet.";
      box.append(make("p", { class: "word" }, "Not finished yet"), make("p", {}, `${done} No embedding yet: this page shows the results so far.`));
      if (data.next) box.append(make("p", { class: "note" }, "This goes on:"), Page.copy(data.next));
      return;
    }
    const lines = [...data.fit], first = lines.findIndex((line) => KINDS[line.split(":")[0]]);
    const line = lines.splice(Math.max(first, 0), 1)[0], word = line.split(":")[0], kind = KINDS[word];
    if (kind) section.classList.add(kind);
    const rest = kind ? line.slice(word.length + 1).trim() : line, end = rest.indexOf(". ") + 1 || rest.length;
    box.append(make("p", { class: "word" }, kind ? `${word}: ${rest.slice(0, end)}` : rest.slice(0, end)));
    const others = [rest.slice(end).trim(), ...lines].filter(Boolean);
    box.append(make("ul", {}, ...others.map((text) => make("li", {}, text))));
    if (data.next) box.append(make("p", { class: "note" }, "The embedding does not belong to these settings. This command makes it again:"), Page.copy(data.next));
  }
  verdict();

  let map = null;
  if (data.map) map = scatter(byId("map-content"), data.map);
  else hide("map");

  if (data.quilt && data.quilt.x.length > 1) {
    const graph = data.quilt, shown = graph.first.length;
    byId("quilt-about").textContent = (graph.errors ? "A disc is a patch, and its area the number of its nodes. A line is an overlap; its colour is the error that alignment left on it, from 0 (both patches agree) to 1 (they have nothing in common). Click a line, or choose a row of the table, to see both sides of the overlap. Click a disc to find its nodes on the map." : "A disc is a patch, and a line joins two patches that share nodes. Errors are known once the patches are aligned.") + (shown < graph.n_edges ? ` The ${count(shown)} worst of ${count(graph.n_edges)} overlaps are drawn.` : "");
    quilt(byId("quilt-content"), graph, (patch) => {
      if (!map) return;
      map.colourBy("patch");
      map.showOnly(patch);
      byId("map").scrollIntoView({ behavior: "smooth" });
    });
  } else hide("quilt");

  if (data.patches) {
    const charts = [["sizes", "Patch sizes", "nodes in a patch", "patches"], ["overlaps", "Overlaps", "nodes that two joined patches share", "overlaps"], ["coverage", "Coverage", "patches that a node is in", "nodes"]];
    for (const [key, title, xLabel, yLabel] of charts) {
      const values = data.patches[key];
      if (!values) continue;
      const box = byId("patches-content").appendChild(make("div", {}, make("h3", {}, title), make("p", { class: "note" }, `from ${count(values.least)} to ${count(values.most)}, ${number(values.mean)} on average`)));
      Page.histogram(box, { ...values, xLabel, yLabel, label: title });
    }
  } else hide("patches");

  // Loss curves: one line for each patch; the one under the pointer comes forward.
  function training() {
    const curves = data.curves || [];
    if (!curves.length) { hide("training"); return; }
    byId("training-about").textContent = `The loss of ${curves.length === 1 ? "one patch" : `${count(curves.length)} patches`} in each epoch. Training stops when the loss no longer falls, so curves end at different epochs.`;
    const points = curves.flatMap((curve) => curve.points), span = (values) => [Math.min(...values), Math.max(...values)];
    const xs = span(points.map((point) => point[0])), ys = span(points.map((point) => point[1]));
    Page.picture(byId("training-content"), (width) => {
      const { svg, x, y } = Page.frame({ width, height: 280, xs, ys, xLabel: "epoch", yLabel: "loss", label: "loss curves" });
      curves.forEach((curve, k) => {
        const d = curve.points.map(([epoch, loss], i) => `${i ? "L" : "M"}${x(epoch).toFixed(1)} ${y(loss).toFixed(1)}`).join("");
        const line = make("path", { d, fill: "none", stroke: Page.category(k), "stroke-width": 1.6, "stroke-linejoin": "round", opacity: 0.8 });
        const hit = make("path", { d, fill: "none", stroke: "transparent", "stroke-width": 10 }), last = curve.points[curve.points.length - 1];
        hit.addEventListener("pointermove", (event) => { line.setAttribute("stroke-width", 3.5); Page.tooltip.show(event.clientX, event.clientY, `patch ${curve.patch}`, `loss ${number(last[1], 4)} after ${count(last[0])} epochs`); });
        hit.addEventListener("pointerleave", () => { line.setAttribute("stroke-width", 1.6); Page.tooltip.hide(); });
        svg.append(line, hit);
      });
      return svg;
    });
  }
  training();

  function evaluation() {
    const box = byId("evaluation-content"), measured = data.evaluation;
    if (!measured || measured.damaged) {
      if (!data.map) { hide("evaluation"); return; }
      box.append(make("p", { class: "empty" }, "Nothing has been measured. This command measures how well the embedding separates edges from non-edges, and classes where there are labels, beside the patches without alignment:"), Page.copy(`graphquilt evaluate ${data.folder} --compare`));
      return;
    }
    if (measured.of) box.append(make("p", { class: "note" }, `These are measurements of ${measured.of}. Evaluate again.`));
    const TITLES = { full: "one embedding of the whole graph (full)", l2g: "patches, aligned (l2g)", "no-trans": "patches, not aligned (no-trans)" };
    const routes = measured.routes || { l2g: measured };
    const accuracy = (row) => (Page.missing(row.accuracy) ? "–" : row.accuracy.toFixed(3) + (Page.missing(row.accuracy_std) ? "" : ` ± ${row.accuracy_std.toFixed(3)}`));
    const rows = Object.entries(routes).map(([route, figures]) => ({ route, ...figures }));
    box.append(Page.table({ label: "evaluation", rows, columns: [
      { title: "route", value: (row) => TITLES[row.route] || row.route },
      { title: "AUC of edges", value: (row) => row.auc, numeric: true, show: (row) => (Page.missing(row.auc) ? "–" : row.auc.toFixed(3)) },
      { title: "accuracy of classes", value: (row) => row.accuracy, numeric: true, show: accuracy },
    ] }));
    if (measured.losses) box.append(make("p", { class: "note" }, `What each step loses (${measured.unit}): ${Object.entries(measured.losses).map(([step, loss]) => `${step} ${number(loss, 2)}`).join(", ")}.`));
  }
  evaluation();

  function cost() {
    if (!data.stages.length) { hide("cost"); return; }
    const most = Math.max(...data.stages.map((stage) => stage.seconds), 1e-9);
    const bar = (stage) => make("span", { class: "measure" }, make("i", { style: `width:${Math.max(1, (100 * stage.seconds) / most)}%` }));
    byId("cost-content").append(Page.table({ label: "time and memory", rows: data.stages, columns: [
      { title: "stage", value: (stage) => stage.stage, show: (stage) => make("span", {}, stage.stage, stage.patches ? ` (${count(stage.patches)}, the longest ${duration(stage.longest)})` : "", bar(stage)) },
      { title: "time", value: (stage) => stage.seconds, numeric: true, show: (stage) => duration(stage.seconds) },
      { title: "peak memory", value: (stage) => stage.memory, numeric: true, show: (stage) => bytes(stage.memory) },
    ] }));
  }
  cost();

  const settings = Page.table({ label: "settings", rows: data.settings, limit: 2000, columns: [{ title: "setting", value: (row) => row[0], show: (row) => make("code", {}, row[0]) }, { title: "value", value: (row) => row[1], long: true }] });
  const filter = make("input", { type: "search", placeholder: "filter settings", "aria-label": "filter settings", oninput: () => { const text = filter.value.toLowerCase(); settings.filter((row) => row.join(" ").toLowerCase().includes(text)); } });
  byId("settings-content").append(make("div", { class: "tools" }, filter), settings);
  byId("cite-content").append(...data.cite.map((text) => Page.copy(text)));
  Page.navigation();
})();
