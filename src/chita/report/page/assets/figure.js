// A chart with its caption, its legend, its cursor and its table.

const KINDS = {
  lines: { picture: drawLines, table: linesTable, keys: lineKeys },
  bars: { picture: drawBars, table: barsTable, keys: barKeys },
};
const HINT = "Arrow keys move through the points, Home and End to the first and last.";

function makeFigure(chart) {
  const kind = KINDS[chart.kind];
  const hidden = new Set();
  const plot = make("div", { class: "plot" });
  const picture = make("div", {
    tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": `${chart.title}. ${HINT}`,
  });
  const current = { marks: [], tall: false, ring: () => {} };
  plot.append(picture);
  const choose = addCursor(plot, picture, current);

  function redraw() {
    const { svg, marks, tall = false } = kind.picture(chart, hidden, Math.max(240, plot.clientWidth));
    svg.setAttribute("aria-hidden", "true");
    const ring = draw("circle", { class: "ring", r: 8, visibility: "hidden" });
    svg.append(ring);
    picture.replaceChildren(svg);
    Object.assign(current, { marks, tall, ring: (mark) => (moveRing(ring, mark), dimOthers(svg, mark)) });
    choose(null);
  }

  const figure = make(
    "figure", {}, make("figcaption", {}, chart.title), makeLegend(kind.keys(chart), chart.levels ?? [], hidden, redraw), plot,
    makeDetails("As a table", kind.table(chart)),
  );
  watchWidth(plot, redraw);
  return figure;
}

function moveRing(ring, mark) {
  ring.setAttribute("visibility", mark ? "visible" : "hidden");
  if (!mark) return;
  ring.setAttribute("cx", mark.x);
  ring.setAttribute("cy", mark.y);
}

// Emphasise the curve of the mark.
function dimOthers(svg, mark) {
  for (const [row, curve] of svg.querySelectorAll(".series").entries()) {
    curve.classList.toggle("dim", mark !== null && row !== mark.row);
  }
}

// Draw for the available width, and again when it changes.
function watchWidth(plot, redraw) {
  let width = 0;
  new ResizeObserver(() => {
    if (plot.clientWidth === width) return;
    width = plot.clientWidth;
    redraw();
  }).observe(plot);
}

function lineKeys(chart) {
  return chart.series.map((series) => ({ name: series.name, mark: marker(series, 5) }));
}

function barKeys(chart) {
  return chart.parts.map((name, place) => ({
    name, mark: draw("rect", { x: -6, y: -6, width: 12, height: 12, rx: 2, fill: colour(place) }),
  }));
}

// Return a switch for each series or part, and the levels; a single one needs no legend.
function makeLegend(keys, levels, hidden, redraw) {
  if (keys.length + levels.length < 2) return null;
  const entries = keys.map(({ name, mark }) => {
    const button = make(
      "button", { type: "button", "aria-pressed": "true" }, draw("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, mark), name,
    );
    button.addEventListener("click", () => {
      if (!hidden.delete(name)) hidden.add(name);
      button.setAttribute("aria-pressed", String(!hidden.has(name)));
      redraw();
    });
    return make("li", {}, button);
  });
  return make("ul", { class: "legend", "aria-label": "Shown in the chart" }, ...entries, ...levels.map(makeLevelKey));
}

function makeLevelKey(level) {
  const dash = draw("line", { class: "level", x1: -8, x2: 8, y1: 0, y2: 0 });
  const sign = draw("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, dash);
  return make("li", { class: "key" }, sign, `${level.name}: ${FORMS.percent(level.y)}`);
}

// A table is made when it is first opened: a benchmark may have thousands of rows.
function makeDetails(title, table, unfolded = false) {
  const details = make("details", {}, make("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(makeTable(title, table));
  });
  details.open = unfolded;
  return details;
}

function makeTable(title, { columns, rows }) {
  const isNumber = (text) => /^(-|[-+]?[\d.,]+(e[-+]?\d+)?( ?[%s])?)$/.test(text);
  const look = columns.map((_, place) => (rows.every((row) => isNumber(row[place])) ? { class: "number" } : {}));
  const cell = (text, place) => make("td", look[place], text);
  const head = make("tr", {}, ...columns.map((name, place) => make("th", { scope: "col", ...look[place] }, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map(cell)));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title }, table);
}
