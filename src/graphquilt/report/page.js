// The parts that every page of graphquilt uses: data, elements, formats, theme, tooltip, table, choice, search, charts.
// Text from the data only ever becomes a text node: no name from outside can become markup.
"use strict";
const Page = (() => {
  const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array };
  const SVG = new Set(["svg", "g", "rect", "line", "path", "circle", "text", "title"]);
  const SPACES = "http:" + "//www.w3.org/";
  const byId = (id) => document.getElementById(id);

  // Arrays travel as {"$array": [type, base64]}; see page.py.
  const decoded = (key, value) => {
    if (!value || !value.$array) return value;
    const [type, text] = value.$array, raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let k = 0; k < raw.length; k++) bytes[k] = raw.charCodeAt(k);
    return new ARRAYS[type](bytes.buffer);
  };
  const data = JSON.parse(byId("data").textContent, decoded);

  function make(tag, attributes = {}, ...children) {
    const space = SVG.has(tag) ? "2000/svg" : "1999/xhtml";
    const element = document.createElementNS(SPACES + space, tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name.startsWith("aria-")) element.setAttribute(name, value); // "false" is a value of its own there
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }
  const fill = (element, ...children) => { element.replaceChildren(...children); return element; };

  // Formats.
  const missing = (value) => value === null || value === undefined || Number.isNaN(value);
  const count = (value) => (missing(value) ? "–" : Math.round(value).toLocaleString("en"));
  function number(value, digits = 3) {
    if (missing(value)) return "–";
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const size = Math.abs(value);
    return size >= 1e6 || size < 1e-4 ? value.toExponential(Math.max(digits - 1, 0)) : String(+value.toPrecision(digits));
  }
  function unit(value, units) {
    for (const [name, size] of units) if (Math.abs(value) >= size) return `${+(value / size).toPrecision(3)} ${name}`;
    return `0 ${units[units.length - 1][0]}`;
  }
  const bytes = (value) => (missing(value) ? "–" : unit(value, [["GB", 1e9], ["MB", 1e6], ["kB", 1e3], ["B", 1]]));
  const duration = (value) => (missing(value) ? "–" : unit(value, [["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3]]));

  // Theme: what the reader chose before, or what the system says.
  const root = document.documentElement, listeners = [], system = matchMedia("(prefers-color-scheme: dark)");
  const stored = (value) => { try { return value ? localStorage.setItem("theme", value) : localStorage.getItem("theme"); } catch { return null; } };
  const theme = () => root.dataset.theme;
  function setTheme(name) {
    root.dataset.theme = name;
    const button = byId("theme");
    if (button) { button.textContent = name === "dark" ? "Light" : "Dark"; button.setAttribute("aria-label", `switch to the ${name === "dark" ? "light" : "dark"} theme`); }
    for (const listener of listeners) listener();
  }
  const onTheme = (listener) => listeners.push(listener);
  setTheme(stored() || (system.matches ? "dark" : "light"));
  system.addEventListener("change", () => { if (!stored()) setTheme(system.matches ? "dark" : "light"); });
  byId("theme").addEventListener("click", () => { setTheme(theme() === "dark" ? "light" : "dark"); stored(theme()); });
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  // Colours of data: categories are apart by the golden angle beyond the first ten; the ramp goes from blue to red.
  const FIRST = ["#3b7dd8", "#e07b39", "#2f9e6e", "#c94f6d", "#8a63c9", "#b58a1b", "#2aa3b5", "#8c6d5a", "#d46fb8", "#7f9a3a"];
  const category = (k) => (k < FIRST.length ? FIRST[k] : `hsl(${Math.round((k * 137.508) % 360)} ${52 + (k % 3) * 12}% ${46 + (k % 4) * 5}%)`);
  const RAMP = [[58, 98, 178], [38, 152, 160], [214, 176, 66], [224, 122, 52], [200, 52, 48]];
  function ramp(t) {
    const at = Math.min(Math.max(t, 0), 1) * (RAMP.length - 1), k = Math.min(Math.floor(at), RAMP.length - 2);
    return `rgb(${RAMP[k].map((a, c) => Math.round(a + (RAMP[k + 1][c] - a) * (at - k))).join(",")})`;
  }
  const rampLegend = (low, high) => make("span", {}, low, make("span", { class: "ramp", style: `background:linear-gradient(90deg,${RAMP.map((c) => `rgb(${c})`).join(",")})` }), high);

  // Tooltip: the first line is bold; the box stays inside the window.
  const tooltip = {
    show(x, y, first, ...lines) {
      const box = byId("tooltip") || document.body.appendChild(make("div", { id: "tooltip", role: "status" }));
      fill(box, make("b", {}, first), ...lines.map((line) => make("div", {}, line)));
      box.hidden = false;
      const { width, height } = box.getBoundingClientRect();
      box.style.left = `${Math.max(8, Math.min(x + 14, innerWidth - width - 8))}px`;
      box.style.top = `${y + 18 + height > innerHeight ? Math.max(8, y - height - 12) : y + 18}px`;
    },
    hide() { const box = byId("tooltip"); if (box) box.hidden = true; },
  };
  addEventListener("scroll", tooltip.hide, { passive: true });
  addEventListener("keydown", (event) => { if (event.key === "Escape") tooltip.hide(); });

  // A text with a button that copies it.
  function copy(text) {
    const pre = make("pre", {}, text);
    const select = () => { const range = document.createRange(); range.selectNodeContents(pre); getSelection().removeAllRanges(); getSelection().addRange(range); };
    const button = make("button", { type: "button", onclick: async () => {
      try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { select(); button.textContent = "Selected"; }
      setTimeout(() => { button.textContent = "Copy"; }, 1600);
    } }, "Copy");
    return make("div", { class: "copy" }, pre, button);
  }

  // One of a few: a group of radio buttons; arrow keys move, as in a native group.
  function choice(label, options, change, chosen = options[0] && options[0].value) {
    const buttons = options.map(({ value, title }) => make("button", { type: "button", role: "radio", onclick: () => choose(value) }, title));
    const box = make("div", { class: "choice", role: "radiogroup", "aria-label": label }, ...buttons);
    function choose(value, quiet = false) {
      options.forEach((option, k) => {
        const on = option.value === value;
        buttons[k].setAttribute("aria-checked", on);
        buttons[k].tabIndex = on ? 0 : -1;
      });
      if (!quiet) change(value);
    }
    box.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (buttons.indexOf(document.activeElement) + step + buttons.length) % buttons.length;
      buttons[next].focus();
      choose(options[next].value);
    });
    choose(chosen, true);
    box.choose = choose;
    return box;
  }

  // A box that proposes what it finds: find(text) returns [{text, value}], choose(value) is called for one of them.
  function search(label, find, choose, clear = () => {}) {
    const list = make("ul", { role: "listbox", hidden: true, id: `list-${Math.random().toString(36).slice(2)}` });
    const input = make("input", { type: "search", placeholder: label, "aria-label": label, role: "combobox", "aria-expanded": "false", "aria-controls": list.id, autocomplete: "off", spellcheck: "false" });
    let results = [], at = -1;
    const close = () => { list.hidden = true; input.setAttribute("aria-expanded", "false"); };
    const take = (k) => { if (!results[k]) return; input.value = results[k].text; close(); choose(results[k].value); };
    function mark(k) {
      at = k;
      [...list.children].forEach((item, i) => { item.setAttribute("aria-selected", i === k); if (i === k) item.scrollIntoView({ block: "nearest" }); });
    }
    function propose() {
      const text = input.value.trim();
      if (!text) { close(); clear(); return; }
      results = find(text);
      fill(list, ...results.map((result, k) => make("li", { role: "option", onmousedown: (event) => { event.preventDefault(); take(k); } }, result.text)));
      if (!results.length) list.append(make("li", { class: "empty" }, "Nothing has this name."));
      list.hidden = false;
      input.setAttribute("aria-expanded", "true");
      mark(results.length ? 0 : -1);
    }
    input.addEventListener("input", propose);
    input.addEventListener("blur", close);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        if (list.hidden) propose();
        else if (results.length) mark((at + (event.key === "ArrowDown" ? 1 : -1) + results.length) % results.length);
      } else if (event.key === "Enter" && !list.hidden) { event.preventDefault(); take(at); }
      else if (event.key === "Escape") { close(); }
    });
    const box = make("div", { class: "search" }, input, list);
    box.input = input;
    return box;
  }

  // A table that its headings sort. columns: {title, value(row), show(row)?, numeric?, long?}; pick(row) makes rows buttons.
  function table({ label, columns, rows, pick = null, sort = null, descending = false, limit = 500 }) {
    const body = make("tbody"), note = make("p", { class: "note" });
    let by = sort, down = descending, filter = () => true, picked = null;
    const heads = columns.map((column, k) => make("th", { class: column.numeric && "number", scope: "col" },
      make("button", { type: "button", onclick: () => { down = by === k ? !down : Boolean(column.numeric); by = k; paint(); } }, column.title)));
    function paint() {
      heads.forEach((head, k) => { if (k === by) head.setAttribute("aria-sort", down ? "descending" : "ascending"); else head.removeAttribute("aria-sort"); });
      const some = rows.filter(filter);
      if (by !== null) {
        const value = columns[by].value, order = (a, b) => (missing(a) ? 1 : missing(b) ? -1 : typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
        some.sort((a, b) => { const x = value(a), y = value(b); return missing(x) || missing(y) ? order(x, y) : (down ? -1 : 1) * order(x, y); });
      }
      fill(body, ...some.slice(0, limit).map(line));
      if (!some.length) body.append(make("tr", {}, make("td", { colspan: columns.length, class: "empty" }, "There is none.")));
      note.textContent = some.length > limit ? `The first ${count(limit)} of ${count(some.length)} are shown.` : "";
    }
    function line(row) {
      const cells = columns.map((column) => make("td", { class: column.numeric ? "number" : column.long && "long" }, column.show ? column.show(row) : column.numeric ? number(column.value(row)) : String(column.value(row))));
      const element = make("tr", pick ? { class: row === picked ? "pick on" : "pick", tabindex: 0 } : {}, ...cells);
      if (pick) {
        const go = () => { choose(row); pick(row); };
        element.addEventListener("click", go);
        element.addEventListener("keydown", (event) => {
          if (event.key === "Enter" || event.key === " ") { event.preventDefault(); go(); }
          const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
          if (next && element[next]) { event.preventDefault(); element[next].focus(); }
        });
      }
      element.row = row;
      return element;
    }
    function choose(row) {
      picked = row;
      for (const element of body.children) element.classList.toggle("on", element.row === row);
    }
    const scroll = make("div", { class: "scroll", tabindex: -1 }, make("table", { "aria-label": label }, make("thead", {}, make("tr", {}, ...heads)), body));
    const box = make("div", {}, scroll, note);
    box.filter = (test) => { filter = test; paint(); };
    box.choose = choose;
    box.rows = (replacement) => { rows = replacement; paint(); };
    paint();
    return box;
  }

  // A picture that is drawn again when its width or the theme changes; draw(width) returns an element.
  function picture(container, draw) {
    const box = container.appendChild(make("div", { class: "plot" }));
    let width = 0;
    const paint = () => { if (width > 0) fill(box, draw(width)); };
    new ResizeObserver(([entry]) => { const now = Math.floor(entry.contentRect.width); if (now !== width) { width = now; paint(); } }).observe(box);
    onTheme(paint);
    box.paint = paint;
    return box;
  }

  // Round steps for an axis from low to high.
  function ticks(low, high, wanted = 5, whole = false) {
    if (!(high > low)) high = low + 1;
    const rough = (high - low) / wanted, power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    if (whole) step = Math.max(1, Math.round(step));
    const values = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * step; k++) values.push(+(k * step).toPrecision(12));
    return values;
  }

  // The frame of a chart: returns {svg, x, y} with scales from values to pixels. x may have labels instead of numbers.
  function frame({ width, height, xs, ys, xLabel = "", yLabel = "", label, whole = false, xTicks = null, xText = number }) {
    const left = 52, right = 12, top = yLabel ? 24 : 10, bottom = xLabel ? 42 : 26;
    const svg = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
    const span = (a) => a[1] - a[0] || 1;
    const x = (v) => left + ((v - xs[0]) / span(xs)) * (width - left - right), y = (v) => height - bottom - ((v - ys[0]) / span(ys)) * (height - top - bottom);
    for (const v of ticks(ys[0], ys[1], Math.max(2, Math.floor(height / 48)), whole)) {
      svg.append(make("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), stroke: "var(--line)" }), make("text", { x: left - 8, y: y(v) + 4, "text-anchor": "end" }, number(v)));
    }
    for (const v of xTicks || ticks(xs[0], xs[1], Math.max(2, Math.floor(width / 90)))) {
      svg.append(make("text", { x: x(v), y: height - bottom + 17, "text-anchor": "middle" }, xText(v)));
    }
    if (yLabel) svg.append(make("text", { x: 0, y: 11 }, yLabel));
    if (xLabel) svg.append(make("text", { x: left + (width - left - right) / 2, y: height - 4, "text-anchor": "middle" }, xLabel));
    return { svg, x, y, left, right, top, bottom };
  }

  // A histogram of counts: bins {edges (k + 1), counts (k)}.
  function histogram(container, { edges, counts, xLabel, yLabel, label, height = 190, fillWith = "var(--accent)" }) {
    return picture(container, (width) => {
      const whole = edges.length > 1 && edges[1] - edges[0] === 1;
      const ticksAt = whole && counts.length <= Math.floor(width / 40) ? counts.map((_, k) => edges[k] + 0.5) : null;
      const { svg, x, y } = frame({ width, height, xs: [edges[0], edges[edges.length - 1]], ys: [0, Math.max(...counts, 1) * 1.04], xLabel, yLabel, label, whole: true, xTicks: ticksAt });
      counts.forEach((value, k) => {
        const left = x(edges[k]) + 0.75, wide = Math.max(1, x(edges[k + 1]) - x(edges[k]) - 1.5);
        const bar = make("rect", { x: left, width: wide, y: y(value), height: Math.max(0, y(0) - y(value)), fill: fillWith, rx: 1.5 });
        const range = whole ? number(edges[k] + 0.5) : `${number(edges[k])} to ${number(edges[k + 1])}`;
        bar.addEventListener("pointermove", (event) => tooltip.show(event.clientX, event.clientY, range, `${count(value)} ${yLabel}`));
        bar.addEventListener("pointerleave", tooltip.hide);
        svg.append(bar);
      });
      return svg;
    });
  }

  // The bar at the top lists the sections that have a heading.
  function navigation() {
    const nav = document.querySelector(".top nav");
    fill(nav, ...[...document.querySelectorAll("section[id] > h2")].filter((head) => !head.parentElement.hidden).map((head) => make("a", { href: `#${head.parentElement.id}` }, head.dataset.short || head.textContent)));
  }

  return { data, byId, make, fill, missing, count, number, bytes, duration, theme, onTheme, colour, category, ramp, rampLegend, tooltip, copy, choice, search, table, picture, ticks, frame, histogram, navigation };
})();
