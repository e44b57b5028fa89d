// Build the page from its data: figures, the headline chart, sections, and folded details.

const page = JSON.parse(document.getElementById("data").textContent);

function makeLogo() {
  const kept = [0, 3, 5, 6, 9, 12, 15];
  const dots = Array.from({ length: 16 }, (_, place) =>
    draw("circle", { cx: 3 + 6 * (place % 4), cy: 3 + 6 * Math.floor(place / 4), r: kept.includes(place) ? 2.6 : 0.9 }),
  );
  return draw("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, ...dots);
}

function makeFact({ label, value, note }) {
  const lines = [make("dt", {}, label), make("dd", { class: "value" }, value)];
  return make("div", { class: "fact" }, ...lines, note ? make("dd", { class: "note" }, note) : null);
}

function makeSection({ title, text, charts }, place) {
  return make(
    "section", { id: `section-${place}`, "aria-labelledby": `title-${place}` },
    make("h2", { id: `title-${place}` }, title),
    text ? make("p", { class: "text" }, text) : null,
    charts.length ? make("div", { class: "charts" }, ...charts.map((chart) => makeFigure(chart))) : null,
  );
}

function makeFold({ title, text, charts, tables, masks }) {
  const makeContent = () => make(
    "div", { class: "content" },
    text ? make("p", { class: "text" }, text) : null,
    charts.length ? make("div", { class: "charts small" }, ...charts.map((chart) => makeFigure(chart))) : null,
    masks.length ? make("div", { class: "masks" }, ...masks.map(makeMask)) : null,
    ...tables.flatMap((table) => [
      table.title === title ? null : make("h3", {}, table.title), makeTable(table.title, table),
    ]),
  );
  return makeDetails(title, makeContent, { class: "fold card" });
}

function makeFolds() {
  if (!page.folds.length) return "";
  return make(
    "section", { id: "details", "aria-labelledby": "title-details" },
    make("h2", { id: "title-details" }, "Details"), ...page.folds.map(makeFold),
  );
}

function makeNavigation() {
  const links = page.sections.map((section, place) => [`section-${place}`, section.title]);
  if (page.folds.length) links.push(["details", "Details"]);
  const items = links.map(([id, title]) => make("li", {}, make("a", { href: `#${id}` }, title)));
  return make("nav", { "aria-label": "Sections" }, make("ul", {}, ...items));
}

document.getElementById("top").append(
  make("div", { class: "brand" }, makeLogo(), `chita ${page.version}`),
  make("h1", {}, ...soft(page.title)),
  make("p", { class: "lead" }, ...soft(page.lead)),
  page.facts.length ? make("dl", { class: "facts" }, ...page.facts.map(makeFact)) : "",
);
document.getElementById("main").append(
  page.headline ? makeFigure(page.headline, { class: "headline" }) : "",
  page.sections.length > 1 ? makeNavigation() : "",
  ...page.sections.map(makeSection),
  makeFolds(),
);
document.getElementById("foot").append(`Made by chita report ${page.version}. The page is self-contained: it loads no other files.`);
