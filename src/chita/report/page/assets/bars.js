// Bars, one under the other, each of one or more parts.

const TALLEST = 900; // the height of many bars together, in pixels

function drawBars(chart, hidden, width) {
  const parts = chart.parts.map((name, place) => ({ name, place })).filter((part) => !hidden.has(part.name));
  const pitch = Math.min(28, Math.max(3, TALLEST / chart.rows.length));
  const labelled = pitch >= 14;
  const longest = (texts) => 7 * Math.max(...texts.map((text) => text.length)) + 12;
  const left = labelled ? Math.min(longest(chart.rows.map((row) => row.name)), 0.38 * width) : 0;
  const right = labelled ? width - Math.min(longest(chart.rows.map((row) => row.text)), 0.42 * width) : width;
  const height = Math.ceil(pitch * chart.rows.length) + 4;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, height });
  const length = (row) => parts.reduce((sum, part) => sum + row.values[part.place], 0);
  const full = chart.full || Math.max(...chart.rows.map(length)) || 1;
  const scale = (right - left) / full;
  const marks = chart.rows.map((row, place) => {
    const top = pitch * place + 2;
    drawBar(svg, row, parts, { left, right, top, thick: Math.max(1, pitch - (labelled ? 12 : 1)), scale });
    const middle = top + pitch / 2;
    if (labelled) labelBar(svg, row, { left, right, width, middle });
    return { x: left + scale * length(row), y: middle, row: place, column: 0, text: describeBar(chart, row) };
  });
  return { svg, marks, tall: true };
}

function drawBar(svg, row, parts, { left, right, top, thick, scale }) {
  const y = top + (thick > 8 ? 6 : 0);
  svg.append(draw("rect", { class: "track", x: left, y, width: right - left, height: thick, rx: 2 }));
  let from = left;
  for (const part of parts) {
    const wide = scale * row.values[part.place];
    svg.append(draw("rect", { x: from, y, width: wide, height: thick, fill: colour(part.place) }));
    from += wide;
  }
}

function labelBar(svg, row, { left, right, width, middle }) {
  svg.append(draw("text", { class: "name", x: 0, y: middle + 4 }, fit(row.name, left - 8)));
  svg.append(draw("text", { x: width, y: middle + 4, "text-anchor": "end" }, fit(row.text, width - right - 8)));
}

function describeBar(chart, row) {
  const figures = chart.parts.map((part, place) => `${part} ${FORMS[chart.form](row.values[place])}`);
  return [`${chart.label} ${row.name}`, ...figures, row.text].join("\n");
}

function barsTable(chart) {
  return {
    columns: [chart.label, ...chart.parts, ""],
    rows: chart.rows.map((row) => [row.name, ...row.values.map(FORMS[chart.form]), row.text]),
  };
}
