"use strict";
// Sorts and filters the table, keeps both in the address (#sort=eager&dir=desc&q=softmax), and draws the plots.
(() => {
  const table = document.getElementById("runs"), body = table.tBodies[0], rows = Array.from(body.rows);
  const heads = Array.from(table.tHead.rows[0].cells), form = document.getElementById("filters");
  const fields = { q: "f-q", reward: "f-reward", reason: "f-reason", model: "f-model", state: "f-state", min: "f-min" };
  for (const key in fields) fields[key] = document.getElementById(fields[key]);
  const numeric = new Set(heads.filter((h) => h.classList.contains("n")).map((h) => h.dataset.key));
  const state = { sort: "", dir: "" };
  const texts = rows.map((row) => row.textContent.toLowerCase());

  // A head may span several cells; the first of them holds the value.
  const column = {};
  let at = 0;
  for (const head of heads) { column[head.dataset.key] = at; at += head.colSpan; }

  function value(row, key) {
    const cell = row.cells[column[key]];
    const raw = cell.dataset.v ?? cell.textContent.trim();
    if (raw === "") return null;
    return numeric.has(key) ? Number(raw) : raw.toLowerCase();
  }

  function sort() {
    const sign = state.dir === "desc" ? -1 : 1;
    const keyed = rows.map((row, index) => ({ row, index, v: state.sort ? value(row, state.sort) : index }));
    // What has no value comes last in both directions: it is not small, it is unknown.
    keyed.sort((a, b) => {
      if (a.v === null || b.v === null) return (a.v === null) - (b.v === null) || a.index - b.index;
      return (a.v < b.v ? -sign : a.v > b.v ? sign : 0) || a.index - b.index;
    });
    body.append(...keyed.map((item) => item.row));
    for (const head of heads) {
      const on = head.dataset.key === state.sort;
      head.setAttribute("aria-sort", on ? (state.dir === "desc" ? "descending" : "ascending") : "none");
    }
  }

  function filter() {
    const words = fields.q.value.toLowerCase().split(/\s+/).filter(Boolean);
    const least = fields.min.value === "" ? null : Number(fields.min.value);
    let shown = 0;
    rows.forEach((row, index) => {
      const d = row.dataset;
      const keep = words.every((word) => texts[index].includes(word))
        && ["reward", "reason", "model", "state"].every((k) => !fields[k].value || d[k] === fields[k].value)
        && (least === null || (d.eager !== "" && Number(d.eager) >= least));
      row.hidden = !keep;
      shown += keep;
    });
    const all = rows.length;
    document.getElementById("count").textContent = shown === all ? `${all} runs` : `${shown} of ${all} runs`;
  }

  function remember() {
    const told = new URLSearchParams();
    if (state.sort) { told.set("sort", state.sort); told.set("dir", state.dir); }
    for (const key in fields) if (fields[key].value) told.set(key, fields[key].value);
    const text = told.toString();
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }

  function recall() {
    const told = new URLSearchParams(location.hash.slice(1));
    state.sort = told.get("sort") in column ? told.get("sort") : "";
    state.dir = told.get("dir") === "desc" ? "desc" : "asc";
    for (const key in fields) fields[key].value = told.get(key) ?? "";
    if (state.sort) sort();
    if (location.hash.includes("=")) filter();
  }

  for (const head of heads) {
    head.querySelector("button").addEventListener("click", () => {
      const key = head.dataset.key, first = numeric.has(key) && key !== "sample" ? "desc" : "asc";
      const again = state.sort === key;
      state.dir = again ? (state.dir === "desc" ? "asc" : "desc") : first;
      state.sort = key;
      sort();
      remember();
    });
  }
  form.addEventListener("input", () => { filter(); remember(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => setTimeout(() => { filter(); remember(); }));
  addEventListener("hashchange", () => { if (location.hash.includes("=")) recall(); });
  recall();

  const figures = JSON.parse(document.getElementById("figures").textContent);
  const still = matchMedia("(prefers-reduced-motion: reduce)");
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function colours() {
    const style = getComputedStyle(document.documentElement);
    return (name) => style.getPropertyValue(`--${name}`).trim();
  }

  function paint(id, figure) {
    const c = colours(), { data, layout } = structuredClone(figure);
    layout.font.color = c("text");
    layout.font.family = getComputedStyle(document.body).fontFamily;
    for (const axis of [layout.xaxis, layout.yaxis]) Object.assign(axis, { gridcolor: c("line"), linecolor: c("line"), zerolinecolor: c("line") });
    layout.hoverlabel = { ...layout.hoverlabel, bgcolor: c("panel"), bordercolor: c("line"), font: { color: c("text") } };
    for (const shape of layout.shapes ?? []) shape.line.color = c("dim");
    layout.transition = still.matches ? { duration: 0 } : undefined;
    if (id === "plot-reward") data[0].marker = { color: [c("bad"), c("fair"), c("good"), c("good"), c("dim")] };
    if (id === "plot-cost") data[0].marker = { color: c("eager") };
    if (id === "plot-turns") {
      data[0].marker.color = data[1].marker.color = c("eager");
      data[2].line.color = c("compile");
    }
    if (id === "plot-fast") {
      data.forEach((trace) => {
        const colour = c(trace.legendgroup);
        trace.line.color = colour;
        if (trace.fill) trace.fillcolor = `${colour}2e`;  // #rrggbb and an alpha
      });
    }
    return Plotly.react(id, data, layout, { displaylogo: false, displayModeBar: false, responsive: true });
  }

  function draw() {
    return Promise.all(Object.entries(figures).map(([id, figure]) => paint(id, figure)));
  }
  dark.addEventListener("change", draw);
  draw().then(() => { document.body.dataset.drawn = "yes"; });
})();
