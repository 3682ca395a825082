// A figure as a file of its own: an SVG with every colour written out, or the same drawn as a PNG of twice the size.

const PAINT = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linecap",
  "stroke-linejoin",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "dominant-baseline",
];
const LEGEND_ROW = 18;

function offer(name, blob) {
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// The style sheet stays behind, so each element takes along what it says.
function painted(drawing) {
  const copy = drawing.cloneNode(true);
  const pairs = [[drawing, copy]];
  [...drawing.querySelectorAll("*")].forEach((original, i) => pairs.push([original, copy.querySelectorAll("*")[i]]));
  const gone = [];
  for (const [original, twin] of pairs) {
    const style = getComputedStyle(original);
    if (style.display === "none") gone.push(twin);
    for (const name of PAINT) twin.setAttribute(name, style.getPropertyValue(name));
    twin.removeAttribute("class");
    twin.removeAttribute("style");
  }
  for (const twin of gone) twin.remove();
  return copy;
}

function legendRow([label], place, ink) {
  const index = numbers.index(label);
  const line = getComputedStyle(document.documentElement).getPropertyValue(`--c${index % COLOURS}`).trim();
  const y = place * LEGEND_ROW + 12;
  return [
    shape("line", { x1: 4, x2: 26, y1: y, y2: y, stroke: line, "stroke-width": 2.5, "stroke-dasharray": dash(index) }),
    words(label, 34, y + 4, null, { fill: ink, "font-family": "sans-serif", "font-size": 12 }),
  ];
}

// The drawings of a figure where they stand on the page, below a legend of the runs in sight.
function figureFile(figure) {
  const root = getComputedStyle(document.documentElement);
  const [paper, ink] = ["--page", "--ink"].map((name) => root.getPropertyValue(name).trim());
  const frame = figure.plot.getBoundingClientRect();
  const runs = figure.legend === false ? [] : numbers.shown(state);
  const top = runs.length * LEGEND_ROW + 6;
  const [width, height] = [Math.ceil(frame.width), Math.ceil(frame.height) + top];
  const file = shape("svg", { xmlns: SVG, width, height, viewBox: `0 0 ${width} ${height}` });
  file.append(shape("title", {}, figure.heading), shape("rect", { width, height, fill: paper }));
  runs.forEach((run, place) => file.append(...legendRow(run, place, ink)));
  for (const drawing of figure.plot.querySelectorAll("svg")) {
    if (drawing.parentElement.closest(".tip")) continue;
    const where = drawing.getBoundingClientRect();
    const copy = painted(drawing);
    const box = { x: where.x - frame.x, y: where.y - frame.y + top, width: where.width, height: where.height };
    for (const [name, value] of Object.entries(box)) copy.setAttribute(name, value);
    file.append(copy);
  }
  return { text: new XMLSerializer().serializeToString(file), width, height };
}

function saveDrawing(figure) {
  offer(`${figure.id}.svg`, new Blob([figureFile(figure).text], { type: "image/svg+xml" }));
}

function savePixels(figure) {
  const { text, width, height } = figureFile(figure);
  const image = new Image();
  image.addEventListener("load", () => {
    const canvas = element("canvas", { width: 2 * width, height: 2 * height });
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    canvas.toBlob((blob) => offer(`${figure.id}.png`, blob));
  });
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
}
