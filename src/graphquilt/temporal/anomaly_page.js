// The report of a batch run on a network over time.
"use strict";
(() => {
  const { data, byId, make, fill, count, number } = Page;
  const windows = data.windows, label = (k) => windows[k].label;
  const SIDES = ["source", "destination"];
  let chosen = null; // a window, by position

  byId("title").textContent = data.title;
  byId("lead").textContent = windows.length ? `From ${label(0)} to ${label(windows.length - 1)}. A severity of 40 is expected by chance once per window and side, 60 once in ten windows, 100 once in a thousand.` : "There are no windows.";
  for (const [what, value] of data.facts) byId("facts").append(make("li", {}, make("b", {}, count(value)), make("span", {}, what)));

  // Labels along the windows: as many as fit beside each other.
  function spots(width) {
    const longest = Math.max(1, ...windows.map((w) => w.label.length)), room = longest * 6.6 + 18;
    const every = Math.max(1, Math.ceil(windows.length / Math.max(1, Math.floor((width - 64) / room))));
    return windows.map((_, k) => k).filter((k) => k % every === 0);
  }
  const tip = (element, ...lines) => {
    element.addEventListener("pointermove", (event) => Page.tooltip.show(event.clientX, event.clientY, ...lines));
    element.addEventListener("pointerleave", Page.tooltip.hide);
  };
  const when = (k) => make("span", { style: "white-space:nowrap" }, label(k));
  const severity = (value) => make("span", { class: `tag ${value >= 80 ? "bad" : value >= data.unusual ? "fair" : ""}` }, number(value, 3));

  // The timeline: unusual hosts in each window; a click shows the alerts of that window only.
  byId("timeline-about").textContent = `How many hosts had a severity of at least ${data.unusual} in each window. Click a window to see its alerts.`;
  const legend = [["var(--source)", "sources"], ["var(--destination)", "destinations"]];
  if (windows.some((w) => w.learning)) legend.push(["var(--accent-soft)", "learning, not judged"]);
  if (windows.some((w) => w.left_out)) legend.push(["var(--line)", "not embedded"]);
  fill(byId("timeline-legend"), ...legend.map(([colour, text]) => make("span", {}, make("i", { style: `background:${colour}` }), text)));
  const timeline = Page.picture(byId("timeline-content"), (width) => {
    const top = Math.max(1, ...windows.map((w) => w.source + w.destination));
    const { svg, x, y, top: above, bottom } = Page.frame({ width, height: 210, xs: [-0.5, windows.length - 0.5], ys: [0, top], yLabel: "unusual hosts", label: "unusual hosts in each window", whole: true, xTicks: spots(width), xText: label });
    const step = x(1) - x(0), wide = Math.max(1, step * 0.72);
    windows.forEach((w, k) => {
      const back = k === chosen ? "var(--accent-soft)"  : w.learning ? "var(--accent-soft)" : w.left_out ? "var(--line)" : "transparent";
      const bar = make("g", { class: "bar", tabindex: 0, role: "button", "aria-label": `${w.label}: ${w.source} sources, ${w.destination} destinations` },
        make("rect", { x: x(k - 0.5), width: step, y: above, height: 210 - bottom - above, fill: back }),
        make("rect", { x: x(k) - wide / 2, width: wide, y: y(w.source), height: y(0) - y(w.source), fill: "var(--source)" }),
        make("rect", { x: x(k) - wide / 2, width: wide, y: y(w.source + w.destination), height: y(0) - y(w.destination), fill: "var(--destination)" }));
      const go = () => { chosen = chosen === k ? null : k; timeline.paint(); narrow(); };
      bar.addEventListener("click", go);
      bar.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); } });
      tip(bar, w.label, `${count(w.flows)} flows`, w.learning ? "learnt from, not judged" : `${count(w.source)} unusual sources, ${count(w.destination)} unusual destinations`, ...(w.left_out ? [`not embedded: ${w.left_out}`] : []));
      svg.append(bar);
    });
    return svg;
  });

  // The severities of a host in all windows.
  function severities(host) {
    const values = windows.map(() => null), { starts } = data.hosts;
    for (let k = starts[host]; k < starts[host + 1]; k++) values[data.hosts.windows[k]] = data.hosts.severities[k];
    return values;
  }
  const rows = new Map(data.hosts.names.map((name, k) => [`${data.hosts.sides[k]} ${name}`, k]));
  function history(container, side, name, at = null) {
    const host = rows.get(`${SIDES.indexOf(side)} ${name}`), values = host === undefined ? [] : severities(host);
    if (!values.some((v) => v !== null)) { container.append(make("p", { class: "note" }, "Its other windows are not on this page; they are in scores.parquet.")); return; }
    Page.picture(container, (width) => {
      const { svg, x, y } = Page.frame({ width, height: 190, xs: [-0.5, windows.length - 0.5], ys: [0, 100], yLabel: `severity as ${side}`, label: `severity of ${name} as ${side}`, xTicks: spots(width), xText: label });
      svg.append(make("line", { x1: x(-0.5), x2: x(windows.length - 0.5), y1: y(data.unusual), y2: y(data.unusual), stroke: "var(--bad)", "stroke-dasharray": "5 4" }));
      let path = "", down = false;
      values.forEach((v, k) => { if (v === null) { down = false; return; } path += `${down ? "L" : "M"}${x(k).toFixed(1)} ${y(v).toFixed(1)}`; down = true; });
      svg.append(make("path", { d: path, fill: "none", stroke: `var(--${side})`, "stroke-width": 1.5 }));
      values.forEach((v, k) => {
        if (v === null) return;
        const dot = make("circle", { cx: x(k), cy: y(v), r: k === at ? 5.5 : 2.8, fill: v >= data.unusual ? "var(--bad)" : `var(--${side})` });
        tip(dot, label(k), `severity ${v}`);
        svg.append(dot);
      });
      return svg;
    });
  }

  // One alert: its components as bars of severity, then its history and partners.
  function detail(alert) {
    const box = byId("alert-detail");
    fill(box, make("h3", {}, `${alert.node} as ${alert.side}, ${label(alert.window)}`), make("p", { class: "note" }, `p = ${number(alert.pvalue, 2)}, severity ${number(alert.severity, 3)}${alert.repeat > 1 ? `; window ${alert.repeat} of its incident` : ""}`));
    const lines = alert.components.map((c) => {
      const height = Math.min(100, -20 * Math.log10(Math.max(c.pvalue ?? 1, 1e-30)));
      const bar = make("div", { style: `height:8px;border-radius:4px;background:var(--${height >= data.unusual ? "bad" : "accent"});width:${Math.max(1, height)}%`, title: `severity ${number(height, 3)}` });
      return make("tr", {}, make("td", {}, make("b", {}, c.name), make("div", { class: "empty" }, data.meanings[c.name] || ""), bar), make("td", { class: "number" }, number(c.value, 3)), make("td", { class: "number" }, number(c.z, 2)), make("td", { class: "number" }, number(c.pvalue, 2)));
    });
    box.append(make("div", { class: "scroll" }, make("table", { "aria-label": "components of the alert" }, make("thead", {}, make("tr", {}, make("th", {}, "component"), make("th", { class: "number" }, "value"), make("th", { class: "number" }, "z"), make("th", { class: "number" }, "p"))), make("tbody", {}, ...lines))));
    if (alert.tokens) box.append(make("p", { class: "note" }, "Most surprising in its device log: ", make("b", {}, alert.tokens.join(", "))));
    history(box, alert.side, alert.node, alert.window);
    if (alert.degree === undefined) { box.append(make("p", { class: "note" }, "The partners of this alert were not compared; only those at the top are.")); return; }
    const named = (list, all) => (list.length ? list.join(", ") + (all > list.length ? ` … (${count(all)} in all)` : "") : "none");
    const entries = [["partners", `${count(alert.degree)} (usually ${alert.usual_degree === null ? "unknown" : number(alert.usual_degree, 3)})`], ["new", named(alert.new, alert.n_new)], ["missing", named(alert.gone, alert.n_gone)], ["id", alert.id]];
    box.append(make("dl", {}, ...entries.flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value)])));
  }
  const alerts = Page.table({
    label: "alerts", rows: data.alerts, pick: detail, sort: 3, descending: true,
    columns: [
      { title: "window", value: (a) => label(a.window), show: (a) => when(a.window) },
      { title: "host", value: (a) => a.node, long: true },
      { title: "side", value: (a) => a.side, show: (a) => make("span", { class: `tag ${a.side}` }, a.side) },
      { title: "severity", value: (a) => a.severity, show: (a) => severity(a.severity), numeric: true },
      { title: "why", value: (a) => a.components.slice(0, 2).map((c) => c.name).join(", ") },
    ],
  });
  byId("alert-table").append(alerts);
  let side = "", wanted = "";
  const all = make("button", { type: "button", hidden: true, onclick: () => { chosen = null; timeline.paint(); narrow(); } }, "all windows");
  const note = make("span", { class: "empty" });
  function narrow() {
    const test = (a) => (chosen === null || a.window === chosen) && (!side || a.side === side) && (!wanted || a.node.toLowerCase().includes(wanted));
    alerts.filter(test);
    all.hidden = chosen === null;
    note.textContent = `${count(data.alerts.filter(test).length)} of ${count(data.n_alerts.host)} alerts${chosen === null ? "" : ` · ${label(chosen)}`}`;
  }
  const finder = make("input", { type: "search", placeholder: "host", "aria-label": "only hosts whose name contains this", oninput: (event) => { wanted = event.target.value.trim().toLowerCase(); narrow(); } });
  byId("alert-tools").append(finder, Page.choice("side", [{ value: "", title: "both sides" }, ...SIDES.map((value) => ({ value, title: `${value}s` }))], (value) => { side = value; narrow(); }), all, note);
  narrow();
  const first = data.alerts[0];
  if (first) { alerts.choose(first); detail(first); } else byId("alert-detail").append(make("p", { class: "empty" }, windows.every((w) => w.learning) ? "Nothing could be judged." : "There is no alert."));

  // Connections and incidents.
  if (data.pairs.length) byId("pair-table").append(Page.table({
    label: "connections", rows: data.pairs, sort: 4, descending: true,
    columns: [
      { title: "window", value: (p) => label(p.window), show: (p) => when(p.window) },
      { title: "source", value: (p) => p.source, long: true },
      { title: "destination", value: (p) => p.destination, long: true },
      { title: "port", value: (p) => p.port, show: (p) => (p.port === null ? "–" : String(p.port)), numeric: true },
      { title: "severity", value: (p) => p.severity, show: (p) => severity(p.severity), numeric: true },
      { title: "flows", value: (p) => p.flows, show: (p) => count(p.flows), numeric: true },
      { title: "new", value: (p) => (p.is_new ? "never seen before" : "seen before") },
    ],
  }));
  else byId("connections").hidden = true;
  // An incident: the author, what it did to whom, and what an analyst does with it.
  const who = (i) => (i.kind === "pair" ? `${i.source} → ${i.destination}` : i.node);
  const known = new Set();
  function save(name, text, type) {
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
    link.click();
    URL.revokeObjectURL(link.href);
  }
  function ecs(i) {
    const ends = i.kind === "pair" ? { source: { address: i.source }, destination: { address: i.destination } } : { [i.side]: { address: i.node } };
    return { "@timestamp": new Date(i.start * 1000).toISOString(), ecs: { version: "8.11.0" }, event: { kind: "alert", category: ["network", "intrusion_detection"], module: "graphquilt", id: i.id, start: new Date(i.start * 1000).toISOString(), end: new Date(i.end * 1000).toISOString(), severity: Math.round(i.severity), risk_score: i.severity, reason: i.reason }, ...ends, related: { hosts: i.kind === "pair" ? [i.source, i.destination] : [i.node, ...i.victims] }, graphquilt: i };
  }
  function describe(i) {
    const box = byId("incident-detail"), named = (list, all) => list.join(", ") + (all > list.length ? ` … (${count(all)} in all)` : "");
    const entries = [["from", label(i.windows[0])], ["to", label(i.windows[i.windows.length - 1])], ["flows", count(i.flows)]];
    if (i.kind !== "pair") entries.push([i.side === "source" ? "victims" : "sources", i.n_victims ? named(i.victims, i.n_victims) : "none in particular"], ["ports", i.ports.length ? i.ports.join(", ") : "unknown"]);
    else entries.push(["port", i.port === null ? "unknown" : String(i.port)]);
    if (i.first_flow !== undefined) entries.push(["first flow", i.first_flow], ["last flow", i.last_flow]);
    if (i.bytes) entries.push(["bytes", count(i.bytes)]);
    entries.push(["id", i.id]);
    fill(box, make("h3", {}, i.kind === "pair" ? who(i) : `${i.node}, as ${i.side}`), make("p", { class: "note" }, i.reason), make("dl", {}, ...entries.flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value)])));
    const mark = make("button", { type: "button", title: "adds it to an allow list for --allow", onclick: () => {
      for (const name of i.kind === "pair" ? [i.source] : [i.node]) known.add(name);
      save("known.txt", `# Hosts that never alert: graphquilt anomaly … --allow known.txt\n${[...known].join("\n")}\n`, "text/plain");
    } }, "mark as known");
    box.append(make("div", { class: "tools" }, mark,
      make("button", { type: "button", onclick: () => save(`incident-${i.id}.json`, JSON.stringify(i, null, 2), "application/json") }, "export JSON"),
      make("button", { type: "button", onclick: () => save(`incident-${i.id}.ecs.json`, JSON.stringify(ecs(i)), "application/json") }, "export ECS")));
    if (i.flow_list) box.append(make("h4", {}, "First flows"), make("div", { class: "scroll" }, make("table", { "aria-label": "first flows of the incident" },
      make("thead", {}, make("tr", {}, ...["time", "source", "destination", "port", "bytes"].map((name) => make("th", {}, name)))),
      make("tbody", {}, ...i.flow_list.map((f) => make("tr", {}, ...[f.time, f.source, f.destination, f.port === undefined || f.port < 0 ? "–" : f.port, f.bytes === undefined ? "–" : count(f.bytes)].map((cell) => make("td", {}, String(cell)))))))));
    if (i.kind !== "pair") history(box, i.side, i.node, i.windows[0]);
  }
  if (data.incidents.length) {
    const incidents = Page.table({
      label: "incidents", rows: data.incidents, pick: describe, sort: 3, descending: true,
      columns: [
        { title: "author", value: who, long: true },
        { title: "from", value: (i) => label(i.windows[0]), show: (i) => when(i.windows[0]) },
        { title: "to", value: (i) => label(i.windows[i.windows.length - 1]), show: (i) => when(i.windows[i.windows.length - 1]) },
        { title: "severity", value: (i) => i.severity, show: (i) => severity(i.severity), numeric: true },
        { title: "victims", value: (i) => i.n_victims ?? 1, show: (i) => count(i.n_victims ?? 1), numeric: true },
        { title: "flows", value: (i) => i.flows, show: (i) => count(i.flows), numeric: true },
      ],
    });
    byId("incident-table").append(incidents);
    incidents.choose(data.incidents[0]);
    describe(data.incidents[0]);
  } else byId("incident-table").append(make("p", { class: "empty" }, windows.every((w) => w.learning) ? "Nothing could be judged." : "No alert is severe enough for an incident."));

  // Any host, also those without an alert.
  const names = [...new Set(data.hosts.names)];
  byId("hosts-about").textContent = `Search all ${count(data.hosts.n_all)} hosts (a host counts once as source and once as destination), also those without an alert.` + (data.hosts.n_all > data.hosts.names.length ? ` The page has ${count(data.hosts.names.length)} of them; the others are in scores.parquet.` : "");
  byId("host-tools").append(Page.search("name of a host", (text) => {
    const word = text.toLowerCase(), hits = [];
    for (const name of names) { if (name.toLowerCase().includes(word)) hits.push({ text: name, value: name }); if (hits.length === 50) break; }
    return hits;
  }, (name) => {
    const box = byId("host-detail");
    fill(box, make("h3", {}, name));
    const own = data.alerts.filter((a) => a.node === name).length;
    box.append(make("p", { class: "note" }, own ? `It has ${count(own)} alerts on this page.` : "It has no alert on this page."));
    for (const one of SIDES) if (rows.has(`${SIDES.indexOf(one)} ${name}`)) history(box, one, name);
  }));

  // What was judged, and the windows without positions.
  for (const verdict of data.judged) byId("judged-content").append(make("p", {}, make("span", { class: `tag ${verdict.kind}` }, verdict.word), ` ${verdict.text}`));
  const missing = windows.filter((w) => w.left_out);
  if (missing.length) byId("left-out-content").append(Page.table({ label: "windows without positions", rows: missing, columns: [{ title: "window", value: (w) => w.label }, { title: "flows", value: (w) => w.flows, show: (w) => count(w.flows), numeric: true }, { title: "reason", value: (w) => w.left_out, long: true }] }));
  else byId("left-out").hidden = true;
  Page.navigation();
})();
