// Bars as a list: each entry is a name, its value as text, and a bar. The list needs no cursor and
// no table, because all that it shows is text.

function makeBars(chart) {
  const full = chart.full || Math.max(...chart.rows.map((row) => Math.abs(row.value))) || 1;
  return make("ul", { class: "bars", "aria-label": chart.title }, ...chart.rows.map((row) => makeBar(row, full)));
}

function makeBar({ name, value, text }, full) {
  const ink = make("span", { class: value < 0 ? "ink negative" : "ink" });
  ink.style.width = `${Math.min(100, (100 * Math.abs(value)) / full).toFixed(2)}%`;
  return make(
    "li", {}, make("span", { class: "name" }, ...soft(name)), make("span", { class: "value" }, text),
    make("span", { class: "track", "aria-hidden": "true" }, ink),
  );
}
