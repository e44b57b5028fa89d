// A chart with its caption; one of curves also has a legend, a cursor and a table.

const HINT = "Arrow keys move through the points, Home and End to the first and last.";

function makeFigure(chart, attributes = {}) {
  const caption = make("figcaption", {}, chart.title);
  const text = chart.text ? make("p", { class: "text" }, chart.text) : null;
  const content = chart.kind === "bars" ? [makeBars(chart)] : makeLines(chart);
  return make("figure", attributes, caption, text, ...content);
}

function makeLines(chart) {
  const hidden = new Set();
  const plot = make("div", { class: "plot" });
  const picture = make("div", {
    tabindex: 0, role: "application", "aria-roledescription": "chart", "aria-label": `${chart.title}. ${HINT}`,
  });
  const current = { marks: [], ring: () => {} };
  plot.append(picture);
  const choose = addCursor(plot, picture, current);

  function redraw() {
    const { svg, marks } = drawLines(chart, hidden, Math.max(200, plot.clientWidth));
    svg.setAttribute("aria-hidden", "true");
    const ring = draw("circle", { class: "ring", r: 8, visibility: "hidden" });
    svg.append(ring);
    picture.replaceChildren(svg);
    Object.assign(current, { marks, ring: (mark) => (moveRing(ring, mark), dimOthers(svg, mark)) });
    choose(null);
  }

  watchWidth(plot, redraw);
  const asTable = makeDetails("As a table", () => makeTable(chart.title, linesTable(chart)));
  return [makeLegend(chart, hidden, redraw), plot, asTable];
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

// Return a switch for each series, and the levels; a single one needs no legend.
function makeLegend(chart, hidden, redraw) {
  if (chart.series.length + chart.levels.length < 2) return null;
  const entries = chart.series.map((series) => {
    const sign = draw("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, marker(series, 5));
    const button = make("button", { type: "button", "aria-pressed": "true" }, sign, series.name);
    button.addEventListener("click", () => {
      if (!hidden.delete(series.name)) hidden.add(series.name);
      button.setAttribute("aria-pressed", String(!hidden.has(series.name)));
      redraw();
    });
    return make("li", {}, button);
  });
  const levels = chart.levels.map((level) => makeLevelKey(level, chart.y));
  return make("ul", { class: "legend", "aria-label": "Shown in the chart" }, ...entries, ...levels);
}

function makeLevelKey(level, axis) {
  const dash = draw("line", { class: "level", x1: -8, x2: 8, y1: 0, y2: 0 });
  const sign = draw("svg", { viewBox: "-8 -8 16 16", "aria-hidden": "true" }, dash);
  return make("li", { class: "key" }, sign, `${level.name}: ${show(level.y, axis)}`);
}
