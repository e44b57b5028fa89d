// Curves over x.

const SHAPES = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0z`,
  (r) => `M0,${-1.2 * r}L${1.2 * r},${r}L${-1.2 * r},${r}z`,
];
const PITCH = 10; // pixels between points; a curve with more points has no markers

// Shapes change along the palette and again on each round of it: colour is never the only sign.
function marker(series, radius) {
  const shape = SHAPES[(series.colour + Math.floor(series.colour / COLOURS)) % SHAPES.length];
  const ink = colour(series.colour);
  const look = series.style === "paper" ? { class: "hollow", stroke: ink } : { fill: ink };
  return draw("path", { d: shape(radius), ...look });
}

// The picture of a chart, and its marks for the cursor.
function drawLines(chart, hidden, width) {
  const shown = chart.series.filter((series) => !hidden.has(series.name));
  const points = shown.flatMap((series) => series.points);
  const slanted = chart.x.names && isTight(chart.x.names, width - 86);
  const height = Math.round(Math.min(420, Math.max(260, 0.5 * width))) + (slanted ? 50 : 0);
  const frame = { left: 64, right: width - 22, top: 26, bottom: height - (slanted ? 96 : 44) };
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height });
  if (!points.length) return { svg, marks: [] };
  const heights = points.flatMap(({ y, error }) => (error && y > error ? [y - error, y + error] : [y]));
  const levels = chart.levels.map((level) => level.y);
  const x = scaleFor(chart.x, points.map((point) => point.x), frame.left, frame.right, 76);
  const y = scaleFor(chart.y, [...heights, ...levels], frame.bottom, frame.top, 40);
  drawAxes(svg, chart, { x, y }, frame, { height, slanted });
  drawLevels(svg, chart.levels, y, frame);
  const most = (frame.right - frame.left) / PITCH;
  for (const series of shown) svg.append(drawCurve(series, { x, y }, most));
  const marks = shown.flatMap((series, row) =>
    series.points.map((point, column) => ({
      x: x(point.x), y: y(point.y), row, column, text: describe(chart, series, point),
    })),
  );
  return { svg, marks };
}

// Whether the longest name is wider than its share of the axis.
function isTight(names, width) {
  return Math.max(...names.map((name) => name.length)) * 7.5 > width / names.length;
}

function drawAxes(svg, chart, { x, y }, frame, { height, slanted }) {
  for (const tick of y.ticks) {
    svg.append(draw("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y(tick), y2: y(tick) }));
    svg.append(draw("text", { x: frame.left - 8, y: y(tick) + 4, "text-anchor": "end" }, showTick(tick, chart.y)));
  }
  for (const tick of x.ticks) {
    const room = slanted ? Math.min(100, x(tick) / 0.77 - 18) : 160; // a slanted text ends at its tick
    const text = chart.x.names ? fit(chart.x.names[tick], room) : showTick(tick, chart.x);
    const below = frame.bottom + 18;
    const turn = slanted ? { "text-anchor": "end", transform: `rotate(-40 ${x(tick)} ${below})` } : { "text-anchor": "middle" };
    svg.append(draw("line", { class: "grid", x1: x(tick), x2: x(tick), y1: frame.bottom, y2: frame.bottom + 5 }));
    svg.append(draw("text", { x: x(tick), y: below, ...turn }, text));
  }
  svg.append(draw("text", { x: 0, y: 12 }, chart.y.label));
  svg.append(draw("text", { x: frame.right, y: height - 6, "text-anchor": "end" }, chart.x.label));
}

function drawLevels(svg, levels, y, frame) {
  for (const level of levels) {
    svg.append(draw("line", { class: "level", x1: frame.left, x2: frame.right, y1: y(level.y), y2: y(level.y) }));
  }
}

function drawCurve(series, { x, y }, most) {
  const ink = colour(series.colour);
  const curve = draw("g", { class: "series" });
  if (series.style !== "dots") {
    const path = series.points.map((point) => `${x(point.x).toFixed(1)},${y(point.y).toFixed(1)}`).join("L");
    curve.append(draw("path", { class: `curve ${series.style}`, d: `M${path}`, stroke: ink }));
  }
  if (series.style !== "dots" && series.points.length > most) return curve;
  for (const point of series.points) {
    if (point.error && point.y > point.error) {
      const ends = { y1: y(point.y - point.error), y2: y(point.y + point.error) };
      curve.append(draw("line", { x1: x(point.x), x2: x(point.x), ...ends, stroke: ink }));
    }
    const mark = marker(series, series.style === "dots" && series.points.length < 12 ? 7 : 4);
    mark.setAttribute("transform", `translate(${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)})`);
    curve.append(mark);
  }
  return curve;
}

function describe(chart, series, point) {
  const spread = point.error ? ` ± ${show(point.error, chart.y)}` : "";
  const figures = [`${chart.x.label} ${show(point.x, chart.x)}`, `${chart.y.label} ${show(point.y, chart.y)}${spread}`];
  return [series.name, ...figures, point.note].filter(Boolean).join("\n");
}

// The same figures as a table: a row for each x, a column for each curve.
function linesTable(chart) {
  const places = [...new Set(chart.series.flatMap((series) => series.points.map((point) => point.x)))];
  const cells = (x) =>
    chart.series.map((series) =>
      series.points.filter((point) => point.x === x).map((point) => show(point.y, chart.y)).join(", ") || "-",
    );
  return {
    columns: [chart.x.label, ...chart.series.map((series) => series.name)],
    rows: places.sort((a, b) => a - b).map((x) => [show(x, chart.x), ...cells(x)]),
  };
}
