// Elements, scales and numbers: what every figure is made of. Text only ever enters through textContent.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== false && value != null) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

function shape(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) if (value != null) made.setAttribute(key, value);
  made.append(...children.filter((child) => child != null));
  return made;
}

function words(text, x, y, kind, attributes = {}) {
  return shape("text", { x, y, class: kind, ...attributes }, document.createTextNode(text));
}

// Colours come from the style sheet, so that light, dark and print need no redrawing.
// After seven groups the colours start again with another dash; marks differ too.
const COLOURS = 7;
const DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const colour = (index) => `var(--c${index % COLOURS})`;
const dash = (index) => DASHES[Math.floor(index / COLOURS) % DASHES.length];

const MARKS = [
  (r) => `M${-r},0A${r},${r} 0 1 0 ${r},0A${r},${r} 0 1 0 ${-r},0Z`,
  (r) => `M${-r * 0.9},${-r * 0.9}H${r * 0.9}V${r * 0.9}H${-r * 0.9}Z`,
  (r) => `M0,${-r * 1.2}L${r * 1.1},${r * 0.8}H${-r * 1.1}Z`,
  (r) => `M0,${-r * 1.3}L${r * 1.3},0L0,${r * 1.3}L${-r * 1.3},0Z`,
  (r) => `M0,${r * 1.2}L${r * 1.1},${-r * 0.8}H${-r * 1.1}Z`,
  (r) =>
    `M${-r * 1.3},${-r * 0.45}H${-r * 0.45}V${-r * 1.3}H${r * 0.45}V${-r * 0.45}H${r * 1.3}V${r * 0.45}H${r * 0.45}V${r * 1.3}H${-r * 0.45}V${r * 0.45}H${-r * 1.3}Z`,
  (r) => `M${-r * 1.2},0L${-r * 0.6},${-r}H${r * 0.6}L${r * 1.2},0L${r * 0.6},${r}H${-r * 0.6}Z`,
  (r) =>
    `M0,${-r * 1.35}L${r * 0.4},${-r * 0.4}L${r * 1.3},${-r * 0.4}L${r * 0.55},${r * 0.25}L${r * 0.8},${r * 1.15}L0,${r * 0.6}L${-r * 0.8},${r * 1.15}L${-r * 0.55},${r * 0.25}L${-r * 1.3},${-r * 0.4}L${-r * 0.4},${-r * 0.4}Z`,
];

function mark(index, x, y, size = 4, hollow = false) {
  return shape("path", {
    d: MARKS[index % MARKS.length](size),
    transform: `translate(${x.toFixed(1)},${y.toFixed(1)})`,
    fill: hollow ? "var(--page)" : colour(index),
    stroke: hollow ? colour(index) : "var(--page)",
    "stroke-width": hollow ? 2 : 1,
  });
}

// A swatch for legends and tooltips: the line and the mark of a group.
function swatch(index) {
  const line = {
    x1: 0,
    x2: 22,
    y1: 6,
    y2: 6,
    stroke: colour(index),
    "stroke-width": 2.5,
    "stroke-dasharray": dash(index),
  };
  return shape("svg", { width: 22, height: 12, "aria-hidden": "true" }, shape("line", line), mark(index, 11, 6, 4));
}

const scale = ([low, high], [from, to]) => {
  const span = high - low || 1;
  const at = (value) => from + ((value - low) / span) * (to - from);
  at.invert = (place) => low + ((place - from) / (to - from || 1)) * span;
  return at;
};

function step(low, high, count) {
  const rough = (high - low || Math.abs(high) || 1) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 2.5, 5, 10].find((candidate) => candidate * power >= rough * 0.999);
  return factor * power;
}

function ticks(low, high, count, whole = false) {
  const size = whole ? Math.max(1, Math.round(step(low, high, count))) : step(low, high, count);
  const values = [];
  for (let k = Math.ceil(low / size - 1e-9); k * size <= high + size * 1e-9; k++) values.push(k * size);
  return values;
}

// The domain of an axis: the data, widened to whole ticks; shares never leave [0, 1].
function padded(values, { zero = false, share = false } = {}) {
  let low = Infinity,
    high = -Infinity;
  for (const value of values) {
    if (value == null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return [0, 1];
  if (zero) low = Math.min(0, low);
  if (low === high) [low, high] = low === 0 ? [0, 1] : [Math.min(low * 0.5, low * 1.5), Math.max(low * 0.5, low * 1.5)];
  const size = step(low, high, 8);
  const bottom = Math.floor(low / size + 1e-9) * size,
    top = Math.ceil(high / size - 1e-9) * size;
  return share ? [Math.max(0, bottom), Math.min(1, top)] : [bottom, top];
}

function trimmed(text) {
  return text.includes(".") ? text.replace(/0+$/, "").replace(/\.$/, "") : text;
}

const show = {
  // Scores and losses: three decimals, more where numbers are small.
  value(number) {
    if (number == null) return "–";
    const size = Math.abs(number);
    if (size !== 0 && size < 0.01) return number.toExponential(1);
    if (size >= 10000) return show.large(number);
    return number.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3);
  },
  tick(number) {
    const size = Math.abs(number);
    if (size !== 0 && (size < 0.001 || size >= 1e6)) return number.toExponential(0).replace("e+", "e");
    return size >= 1000 ? show.large(number) : trimmed(number.toFixed(4));
  },
  large(number) {
    if (number == null) return "–";
    const units = ["", "k", "M", "G", "T", "P"];
    let unit = 0;
    while (Math.abs(number) >= 1000 && unit < units.length - 1) {
      number /= 1000;
      unit += 1;
    }
    return (
      trimmed(number.toFixed(Math.abs(number) >= 100 || Number.isInteger(number) ? 0 : 1)) +
      (unit ? " " + units[unit] : "")
    );
  },
  bytes: (number) =>
    number == null ? "–" : `${show.large(number)}${/[a-zA-Z]$/.test(show.large(number)) ? "" : " "}B`,
  count: (number) => (number == null ? "–" : show.large(number)),
  share: (number) => (number == null ? "–" : `${trimmed((100 * number).toFixed(1))} %`),
  seconds(number) {
    if (number == null) return "–";
    if (number < 120) return `${trimmed(number.toFixed(number < 10 ? 1 : 0))} s`;
    return number < 7200 ? `${trimmed((number / 60).toFixed(1))} min` : `${trimmed((number / 3600).toFixed(1))} h`;
  },
  round: (number) => String(Math.round(number)),
};

const AXES = {
  round: { name: "round", format: show.round, whole: true },
  bytes: { name: "bytes sent, both ways", format: show.bytes, zero: true },
  steps: { name: "local steps of all clients", format: show.large, zero: true },
  flops: { name: "FLOPs of all clients", format: show.large, zero: true },
  seconds: { name: "seconds of this machine", format: show.seconds, zero: true },
  time: { name: "time on the clients' devices", format: show.seconds, zero: true },
  energy: { name: "joules of all devices", format: show.large, zero: true },
};

const plain = (name) => String(name).replaceAll("_", " ");
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
