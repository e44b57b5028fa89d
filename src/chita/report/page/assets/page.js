// Build the page from its data.

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

function makeSection(section, place) {
  return make(
    "section", { id: `section-${place}`, "aria-labelledby": `title-${place}` },
    make("h2", { id: `title-${place}` }, section.title),
    section.text ? make("p", { class: "text" }, section.text) : null,
    section.charts.length ? make("div", { class: "charts" }, ...section.charts.map(makeFigure)) : null,
    section.masks.length ? make("div", { class: "masks" }, ...section.masks.map(makeMask)) : null,
    section.tables.length ? make("div", { class: "card tables" }, ...section.tables.map((table) => makeDetails(table.title, table, table.unfolded))) : null,
  );
}

function makeNavigation() {
  const links = page.sections.map((section, place) => make("li", {}, make("a", { href: `#section-${place}` }, section.title)));
  return make("nav", { "aria-label": "Sections" }, make("ul", {}, ...links));
}

document.getElementById("top").append(
  make("div", { class: "brand" }, makeLogo(), `chita ${page.version}`),
  make("h1", {}, page.title),
  make("p", { class: "lead" }, page.lead),
  make("dl", { class: "facts" }, ...page.facts.map(makeFact)),
  page.sections.length > 1 ? makeNavigation() : "",
);
document.getElementById("main").append(...page.sections.map(makeSection));
document.getElementById("foot").append(`Made by chita report ${page.version}. The page is whole in itself: it loads nothing.`);
