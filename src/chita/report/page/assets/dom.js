// Create elements and format numbers. Text is inserted as text, never as HTML.

const COLOURS = 12; // in the palette of page.css
const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function draw(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

// Return a long name in pieces between which a line may break.
function soft(text) {
  return text.split(/(?<=[._:/])/).flatMap((piece, place) => (place ? [make("wbr"), piece] : [piece]));
}

function fourDigits(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-4) return Number(value.toPrecision(4)).toExponential().replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

const FORMS = {
  share: (value) => `${(100 * value).toFixed(2)} %`,
  percent: (value) => `${value.toFixed(2)} %`,
  count: (value) => value.toLocaleString("en"),
  seconds: (value) => (value < 0.1 ? `${fourDigits(value)} s` : `${value.toFixed(2)} s`),
  number: fourDigits,
};

function show(value, axis) {
  return axis.names ? axis.names[value] : FORMS[axis.form](value);
}

// On an axis, a tick needs fewer digits than a figure.
function showTick(value, axis) {
  if (axis.form === "share") return `${fourDigits(100 * value)} %`;
  if (axis.form === "percent") return `${fourDigits(value)} %`;
  if (axis.form === "count" && value < 1e5) return value.toLocaleString("en");
  return axis.form === "seconds" ? `${fourDigits(value)} s` : fourDigits(value);
}

// Shorten a text in its middle to a width in pixels, for 12 px type.
function fit(text, pixels) {
  const room = Math.max(3, Math.floor(pixels / 7));
  if (text.length <= room) return text;
  const end = Math.floor((room - 1) / 2);
  return `${text.slice(0, room - 1 - end)}…${text.slice(text.length - end)}`;
}

function colour(place) {
  return `var(--c${place % COLOURS})`;
}
