// The page: its state, drawing everything anew when something changes, and the polling of the live page.

const LIVE = document.documentElement.dataset.live === "yes";

const state = {
  metric: null,
  statistic: "mean",
  users: "existing",
  when: "after",
  seeds: "band",
  axis: "bytes",
  clip: "share",
  picture: "0",
  hidden: new Set(),
  off: new Set(),
};
let numbers = null;
let shownFigures = [];

function start(data) {
  numbers = new Numbers(data);
  if (!data.metrics.includes(state.metric)) state.metric = data.metric;
  build();
}

// Everything but the text that stands in the file.
function build() {
  const { data } = numbers;
  const refused = refusedFigure(numbers),
    clipping = clippingFigure(numbers);
  const scored =
    numbers.hasScores || LIVE
      ? [curvesFigure(numbers), tuningFigure(numbers), usersFigure(numbers), costFigure(numbers)]
      : [];
  shownFigures = [
    ...scored,
    lossFigure(numbers),
    ...(hasRefused(numbers) ? [refused, clipping] : [clipping, refused]),
  ].filter(Boolean);
  const setup = [dataFigure(numbers), scheduleFigure(numbers)].filter(Boolean);
  place("figures", shownFigures);
  place("setup", setup);
  shownFigures = [...shownFigures, ...setup];
  controls();
  sectionFigures(data);
  update();
}

function place(id, figures) {
  const host = document.getElementById(id);
  const zooms = new Map(
    [...host.querySelectorAll("section")].map((section) => [section.id, section.querySelector(".plot").zoom]),
  );
  host.replaceChildren(...figures.map((figure) => frameOf(figure, zooms.get(figure.id))));
}

function frameOf(figure, zoom) {
  const plot = element("div", { class: `plot ${figure.id}` });
  plot.zoom = zoom;
  const reset = element(
    "button",
    {
      type: "button",
      class: "quiet reset",
      hidden: !zoom,
      onclick: () => {
        plot.zoom = null;
        reset.hidden = true;
        figure.draw(plot, state);
      },
    },
    "Reset zoom",
  );
  plot.addEventListener("zoomed", (event) => {
    reset.hidden = !event.target.zoom;
  });
  const save = element(
    "button",
    {
      type: "button",
      class: "quiet save",
      title: "Save the numbers as a CSV file",
      onclick: () => download(`${figure.file}.csv`, ...files[figure.file](numbers.data)),
    },
    "CSV",
  );
  const saved = (name, save) =>
    element(
      "button",
      { type: "button", class: "quiet picture", title: `Save the figure as ${name}`, onclick: () => save(figure) },
      name,
    );
  const tools = element(
    "div",
    { class: "tools" },
    ...(figure.tools || []).map((tool) =>
      Object.keys(tool.options).length > 5 ? chooser(tool.key, tool.name, tool.options) : segmented(tool),
    ),
    reset,
    saved("SVG", saveDrawing),
    saved("PNG", savePixels),
    save,
  );
  const link = element("a", { class: "anchor", href: `#${figure.id}`, title: "A link to this figure" }, "#");
  const heading = element("div", { class: "head" }, element("h2", {}, figure.heading, " ", link), tools);
  figure.plot = plot;
  figure.line = element("p", { class: "sub" });
  const help = figure.zooms
    ? element("p", { class: "help" }, "Drag to zoom, double-click to see all; arrow keys move along.")
    : null;
  return element(
    "section",
    { class: figure.wide ? "figure wide" : "figure", id: figure.id },
    heading,
    figure.line,
    plot,
    help,
  );
}

function update() {
  document
    .querySelectorAll("[data-state]")
    .forEach((button) =>
      button.setAttribute("aria-pressed", String(state[button.dataset.state] === button.dataset.value)),
    );
  document
    .querySelectorAll("[data-label]")
    .forEach((button) => button.setAttribute("aria-pressed", String(!state.hidden.has(button.dataset.label))));
  for (const figure of shownFigures) {
    figure.line.textContent = figure.note ? figure.note(state) : "";
    figure.draw(figure.plot, state);
  }
  tiles();
  table();
  progress();
}

function change(key, value) {
  state[key] = value;
  update();
}

function sectionFigures(data) {
  data.figures.forEach((figure, index) => {
    const host = document.querySelector(`[data-section="${index}"]`);
    if (!host || !figure) return;
    const spec = { whatItShows: host.dataset.heading };
    const drawings = {
      bars: () => bars(host, { ...figure, ...spec }),
      forest: () => forest(host, { ...figure, ...spec }),
      rates: () => planSection(host, figure),
      lines: () =>
        lineChart(host, {
          ...spec,
          series: figure.series.map(([name, points], place) => ({ name, index: place, points })),
          x: { name: figure.x },
          y: { name: figure.y },
        }),
    };
    shownFigures.push({ plot: host, line: element("p"), draw: drawings[figure.kind] });
  });
}

function progress() {
  const host = document.getElementById("live");
  if (!host) return;
  const { data } = numbers,
    [run] = data.runs;
  const ended = run.done >= run.total,
    left = run.done ? (run.seconds / run.done) * (run.total - run.done) : null;
  const text = ended
    ? `Finished: all ${run.total} rounds.`
    : `Round ${run.done} of ${run.total}. ` +
      (run.done ? `${show.value(run.done / run.seconds)} rounds per second, about ${show.seconds(left)} left. ` : "") +
      `Last round stored ${show.seconds(Math.round(data.age))} ago.`;
  host.querySelector("span").textContent = text;
  host.querySelector("progress").value = run.done / Math.max(1, run.total);
}

async function poll() {
  let wait = 2000;
  try {
    const known = numbers.data.version;
    const answer = await fetch(`data.json?known=${known}`, { cache: "no-store" });
    const fresh = await answer.json();
    document.documentElement.dataset.lost = "no";
    if (fresh.version !== known && fresh.runs[0].digest && !numbers.data.runs[0].digest) location.reload();
    else if (fresh.version !== known) start(fresh);
    else {
      numbers.data.age = fresh.age;
      progress();
    }
  } catch {
    document.documentElement.dataset.lost = "yes";
    wait = 5000;
  }
  setTimeout(poll, wait);
}

function copyButtons() {
  document.querySelectorAll("pre.command").forEach((block) => {
    const button = element(
      "button",
      {
        type: "button",
        class: "quiet copy",
        onclick: async () => {
          await navigator.clipboard.writeText(block.querySelector("code").textContent);
          button.textContent = "Copied";
        },
      },
      "Copy",
    );
    if (navigator.clipboard) block.append(button);
  });
}

function themeButton() {
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
    document.documentElement.dataset.theme = dark ? "light" : "dark";
  });
}

document.querySelectorAll("input[data-run]").forEach((box) =>
  box.addEventListener("change", () => {
    const place = Number(box.dataset.run);
    if (box.checked) state.off.delete(place);
    else state.off.add(place);
    update();
  }),
);

let width = window.innerWidth,
  waiting = null;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(update, 120);
});

themeButton();
copyButtons();
start(JSON.parse(document.getElementById("numbers").textContent));
// The figure that the address names was not there when the browser looked for it.
if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
document.documentElement.dataset.ready = "yes";
if (LIVE) setTimeout(poll, 1000);
