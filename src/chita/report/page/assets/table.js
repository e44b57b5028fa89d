// Tables, and details that are made when they are first opened: a benchmark may have thousands of
// rows, and a chart needs its width to be drawn.

function makeDetails(title, makeContent, attributes = {}) {
  const details = make("details", attributes, make("summary", {}, title));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(makeContent());
  });
  return details;
}

const MANY_ROWS = 60; // a table with more scrolls up and down

// A table that is wider or taller than its place scrolls there, by touch or with the arrow keys.
function makeTable(title, { columns, rows }) {
  const isNumber = (text) => /^(-|[-+]?[\d.,]+(e[-+]?\d+)?( ?[%s])?)$/.test(text);
  const kindOf = (cells) => (cells.every(isNumber) ? "number" : cells.some((text) => text.length > 40) ? "long" : "");
  const look = columns.map((_, place) => ({ class: kindOf(rows.map((row) => row[place])) }));
  const pairs = columns.length === 2;
  const cell = (text, place) => make("td", look[place], ...(pairs ? soft(text) : [text]));
  const head = make("tr", {}, ...columns.map((name, place) => make("th", { scope: "col", ...look[place] }, name)));
  const body = rows.map((row) => make("tr", {}, ...row.map(cell)));
  const table = make("table", { class: pairs ? "pairs" : "" }, make("thead", {}, head), make("tbody", {}, ...body));
  const place = rows.length > MANY_ROWS ? "scroll tall" : "scroll";
  return make("div", { class: place, tabindex: 0, role: "region", "aria-label": title }, table);
}
