// The masks as pictures, repainted when the scheme changes between light and dark.

function makeMask(mask) {
  const shape = mask.shape.join(" x ");
  const share = mask.weights ? mask.kept / mask.weights : 0;
  const note = `${shape}, ${FORMS.count(mask.kept)} of ${FORMS.count(mask.weights)} kept (${FORMS.share(share)})`;
  const canvas = make("canvas", {
    width: mask.width, height: mask.height, tabindex: 0, role: "application", "aria-roledescription": "picture of a mask",
    "aria-label": `${mask.name}, ${note}. Arrow keys move through its patches.`,
  });
  const flat = Math.min(1, Math.max(0.3, mask.rows / mask.columns)); // limits the aspect ratio
  canvas.style.aspectRatio = `1 / ${flat}`;
  const plot = make("div", { class: "plot" }, canvas);
  const cells = Uint8Array.from(atob(mask.cells), (letter) => letter.charCodeAt(0));
  const paint = () => paintMask(canvas, mask, cells);
  paint();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  addMaskCursor(plot, canvas, mask, cells);
  return make("figure", { class: "mask" }, make("figcaption", {}, mask.name, make("span", { class: "note" }, note)), plot);
}

// A cell's ink is as strong as its share of the densest patch.
function paintMask(canvas, mask, cells) {
  const brush = canvas.getContext("2d");
  brush.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--c0");
  brush.clearRect(0, 0, mask.width, mask.height);
  cells.forEach((cell, place) => {
    brush.globalAlpha = cell / 255;
    brush.fillRect(place % mask.width, Math.floor(place / mask.width), 1, 1);
  });
}

// The marks of a mask are its cells, placed where the canvas is drawn now.
function addMaskCursor(plot, canvas, mask, cells) {
  const cell = make("span", { class: "cell", hidden: "" });
  plot.append(cell);
  const current = {
    ring: (mark) => moveCell(cell, mark),
    get marks() {
      return Array.from(cells, (cell, place) => cellMark(canvas, mask, cell, place));
    },
  };
  addCursor(plot, canvas, current);
}

function moveCell(cell, mark) {
  cell.hidden = mark === null;
  if (!mark) return;
  cell.style.left = `${mark.x}px`;
  cell.style.top = `${mark.y}px`;
}

function cellMark(canvas, mask, cell, place) {
  const [row, column] = [Math.floor(place / mask.width), place % mask.width];
  return {
    x: ((column + 0.5) / mask.width) * canvas.clientWidth,
    y: ((row + 0.5) / mask.height) * canvas.clientHeight,
    row, column,
    get text() {
      return describeCell(mask, cell, row, column); // on demand: there may be thousands of cells
    },
  };
}

function describeCell(mask, cell, row, column) {
  const range = (place, cells, size) => {
    const [from, to] = [Math.floor((place * size) / cells), Math.floor(((place + 1) * size) / cells) - 1];
    return from === to ? `${from}` : `${from} to ${to}`;
  };
  const where = [`output ${range(row, mask.height, mask.rows)}`, `input ${range(column, mask.width, mask.columns)}`];
  const share = (mask.densest * cell) / 255;
  const single = mask.height === mask.rows && mask.width === mask.columns;
  return [...where, single ? (cell ? "kept" : "pruned") : `${FORMS.share(share)} kept`].join("\n");
}
