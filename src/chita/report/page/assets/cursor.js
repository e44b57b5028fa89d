// Select a mark by mouse, touch or keyboard; its text is shown and announced.
//
// A mark is {x, y, row, column, text}: a place in the picture, the row that up and down move
// across, the column that left and right move along.

function addCursor(plot, picture, current) {
  const readout = make("p", { class: "readout", role: "status" });
  plot.append(readout);
  let chosen = null;

  function choose(mark) {
    chosen = mark;
    current.ring(mark);
    const text = mark ? mark.text : "";
    if (readout.textContent !== text) readout.textContent = text; // announced once
    if (mark) placeReadout(readout, plot, mark);
  }

  const point = (event) => choose(nearest(current.marks, pointIn(picture, event)));
  picture.addEventListener("pointermove", point);
  picture.addEventListener("pointerdown", point);
  picture.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") choose(null); // a touched mark stays selected
  });
  picture.addEventListener("focus", () => {
    if (chosen === null && picture.matches(":focus-visible")) choose(current.marks[0] ?? null);
  });
  picture.addEventListener("blur", () => choose(null));
  picture.addEventListener("keydown", (event) => {
    const next = step(current.marks, chosen, event.key);
    if (next === undefined) return;
    event.preventDefault();
    choose(next);
  });
  return choose;
}

function pointIn(picture, event) {
  const frame = picture.getBoundingClientRect();
  return { x: event.clientX - frame.left, y: event.clientY - frame.top };
}

function nearest(marks, { x, y }) {
  let best = null;
  let least = Infinity;
  for (const mark of marks) {
    const far = (mark.x - x) ** 2 + (mark.y - y) ** 2;
    if (far < least) [best, least] = [mark, far];
  }
  return best;
}

// Return the mark that a key selects; null to deselect, undefined for other keys.
function step(marks, chosen, key) {
  if (key === "Escape") return null;
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(key)) return undefined;
  if (chosen === null) return marks[0] ?? null;
  const line = marks.filter((mark) => mark.row === chosen.row);
  const place = line.findIndex((mark) => mark.column === chosen.column);
  if (key === "Home") return line[0];
  if (key === "End") return line[line.length - 1];
  if (key === "ArrowLeft") return line[Math.max(0, place - 1)];
  if (key === "ArrowRight") return line[Math.min(line.length - 1, place + 1)];
  const rows = [...new Set(marks.map((mark) => mark.row))];
  const wanted = rows[rows.indexOf(chosen.row) + (key === "ArrowDown" ? 1 : -1)];
  const others = marks.filter((mark) => mark.row === wanted);
  return nearest(others, chosen) ?? chosen;
}

// Place the text beside the mark, inside the plot.
function placeReadout(readout, plot, mark) {
  const { offsetWidth: width, offsetHeight: height } = readout;
  const left = mark.x + 14 + width > plot.clientWidth ? mark.x - 14 - width : mark.x + 14;
  const top = mark.y - height - 10 < 0 ? mark.y + 14 : mark.y - height - 10;
  readout.style.left = `${Math.max(0, Math.min(left, plot.clientWidth - width))}px`;
  readout.style.top = `${top}px`;
}
