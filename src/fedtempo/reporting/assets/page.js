// The page: state, controls, the table, drawing everything anew when something changes, and the live page's polling.

const LIVE = document.documentElement.dataset.live === "yes";

const state = {
  metric: null, statistic: "mean", users: "existing", when: "tuned", seeds: "band", axis: "bytes", clip: "share",
  picture: "0", hidden: new Set(), off: new Set(),
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
  const refused = refusedFigure(numbers), clipping = clippingFigure(numbers);
  const scored = numbers.hasScores || LIVE ? [curvesFigure(numbers), tuningFigure(numbers), usersFigure(numbers), costFigure(numbers)] : [];
  shownFigures = [...scored, lossFigure(numbers),
    ...(hasRefused(numbers) ? [refused, clipping] : [clipping, refused])].filter(Boolean);
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
  const zooms = new Map([...host.querySelectorAll("section")].map((section) => [section.id, section.querySelector(".plot").zoom]));
  host.replaceChildren(...figures.map((figure) => frameOf(figure, zooms.get(figure.id))));
}

function frameOf(figure, zoom) {
  const plot = element("div", { class: `plot ${figure.id}` });
  plot.zoom = zoom;
  const reset = element("button", { type: "button", class: "quiet reset", hidden: !zoom, onclick: () => { plot.zoom = null; reset.hidden = true; figure.draw(plot, state); } }, "Reset zoom");
  plot.addEventListener("zoomed", (event) => { reset.hidden = !event.target.zoom; });
  const save = element("button", { type: "button", class: "quiet save", title: "Save the numbers as a CSV file", onclick: () => download(`${figure.file}.csv`, ...files[figure.file](numbers.data)) }, "CSV");
  const tools = element("div", { class: "tools" }, ...(figure.tools || []).map((tool) => (Object.keys(tool.options).length > 5 ? chooser(tool.key, tool.name, tool.options) : segmented(tool))), reset, save);
  const heading = element("div", { class: "head" }, element("h2", {}, figure.heading), tools);
  figure.plot = plot;
  figure.line = element("p", { class: "sub" });
  const help = figure.zooms ? element("p", { class: "help" }, "Drag to zoom, double-click to see all; arrow keys move along.") : null;
  return element("section", { class: figure.wide ? "figure wide" : "figure", id: figure.id }, heading, figure.line, plot, help);
}

function update() {
  document.querySelectorAll("[data-state]").forEach((button) => button.setAttribute("aria-pressed", String(state[button.dataset.state] === button.dataset.value)));
  document.querySelectorAll("[data-label]").forEach((button) => button.setAttribute("aria-pressed", String(!state.hidden.has(button.dataset.label))));
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

function segmented({ key, name, options }) {
  const buttons = Object.entries(options).map(([value, text]) =>
    element("button", { type: "button", "data-state": key, "data-value": value, onclick: () => change(key, value) }, text));
  return element("div", { class: "segmented", role: "group", "aria-label": name }, ...buttons);
}

function chooser(key, name, options) {
  const select = element("select", { id: `choose-${key}`, onchange: (event) => change(key, event.target.value) },
    ...Object.entries(options).map(([value, text]) => element("option", { value, selected: state[key] === value }, text)));
  return element("label", { class: "chooser" }, element("span", {}, name), select);
}

function controls() {
  const { data } = numbers;
  const chips = numbers.labels.length < 2 ? [] : numbers.labels.map((label, index) =>
    element("button", { type: "button", class: "chip", "data-label": label, title: "Hide or show; double-click to see it alone", onclick: () => toggle(label), ondblclick: () => alone(label) },
      swatch(index), element("span", {}, label)));
  const choices = [
    chooser("metric", "metric", Object.fromEntries(data.metrics.map((metric) => [metric, plain(metric)]))),
    chooser("statistic", "over users", STATISTICS),
    numbers.hasNew ? segmented({ key: "users", name: "users", options: { existing: "existing users", new: "new users" } }) : null,
    segmented({ key: "when", name: "fine-tuning", options: { initial: "before", tuned: "after fine-tuning" } }),
    numbers.several ? segmented({ key: "seeds", name: "seeds", options: { band: "mean and range", each: "every seed" } }) : null,
  ];
  document.getElementById("controls").replaceChildren(
    element("div", { class: "chips", role: "group", "aria-label": "runs" }, ...chips), element("div", { class: "choices" }, ...choices));
}

function toggle(label) {
  if (!state.hidden.delete(label)) state.hidden.add(label);
  update();
}

function alone(label) {
  state.hidden = new Set(numbers.labels.filter((other) => other !== label));
  update();
}

// The best run in sight for each question, or the only one.
function tiles() {
  const shown = numbers.shown(state), host = document.getElementById("tiles");
  const kinds = numbers.hasNew ? ["existing", "new"] : ["existing"];
  const questions = kinds.flatMap((kind) => [["mean", `${kind} users`], ["bottom_decile", `${kind} users, bottom decile`]].map(([statistic, name]) => ({ kind, statistic, name })));
  host.replaceChildren(...questions.map(({ kind, statistic, name }) => {
    const ranked = shown.map(([label, runs]) => ({ label, values: numbers.finals(runs, state.metric, `${kind}_tuned`, statistic), before: mean(numbers.finals(runs, state.metric, `${kind}_initial`, statistic)) }))
      .filter(({ values }) => values.length).sort((a, b) => (numbers.lower(state.metric) ? 1 : -1) * (mean(a.values) - mean(b.values)));
    if (!ranked.length) return null;
    const [best] = ranked, many = shown.length > 1;
    const under = many ? element("span", { class: "who" }, swatch(numbers.index(best.label)), best.label) : element("span", { class: "who" }, `${show.value(best.before)} before fine-tuning`);
    const plus = spread(best.values);
    return element("div", { class: "tile" }, element("span", { class: "what" }, (many ? "best for " : "") + name),
      element("span", { class: "number" }, show.value(mean(best.values)), plus != null ? element("small", {}, ` ${plusMinus(plus)}`) : null), under);
  }).filter(Boolean));
}

const COLUMNS = [["initial", "mean", "before"], ["tuned", "mean", "after"], ["tuned", "bottom_decile", "bottom 10 %"], ["tuned", "std", "std"]];
const COSTS = { bytes: show.bytes, steps: show.large, flops: show.large, seconds: show.seconds };

function table() {
  const shown = numbers.shown(state), kinds = (numbers.hasNew ? ["existing", "new"] : ["existing"]).filter(() => shown.some(([, runs]) => runs.some((run) => run.final)));
  const columns = kinds.flatMap((kind) => COLUMNS.map(([when, statistic, name], i) => ({ name, first: i === 0, values: (runs) => numbers.finals(runs, state.metric, `${kind}_${when}`, statistic),
    bar: when === "tuned" && statistic === "mean" && !numbers.lower(state.metric), better: statistic === "std" || numbers.lower(state.metric) ? -1 : 1 })));
  const costs = Object.entries(COSTS).map(([name, format], i) => ({ name: name === "flops" ? "FLOPs" : name, first: i === 0, format, values: (runs) => numbers.cost(runs, name) }));
  const all = [...columns, ...costs];
  const best = all.map((column) => column.better && Math.max(...shown.map(([, runs]) => column.values(runs)).filter((v) => v.length).map((v) => column.better * mean(v))));
  const groups = element("tr", {}, element("th"), ...kinds.map((kind) => element("th", { colspan: COLUMNS.length, scope: "colgroup", class: "first" }, `${kind} users`)), element("th", { colspan: costs.length, scope: "colgroup", class: "first" }, "cost"));
  const heads = element("tr", {}, element("th", { scope: "col" }, "run"), ...all.map((column) => element("th", { scope: "col", class: column.first ? "first" : "" }, column.name)));
  const rows = shown.map(([label, runs]) => element("tr", {}, element("th", { scope: "row" }, swatch(numbers.index(label)), element("span", {}, label)),
    ...all.map((column, i) => tableCell(column, column.values(runs), shown.length > 1 && best[i]))));
  const title = numbers.data.part ? `${sentence(plain(state.metric))} on the ${numbers.data.part} part, in the round that counts` : "Costs so far";
  document.getElementById("table").replaceChildren(element("table", {}, element("caption", {}, title + (numbers.several ? "; means over seeds ± their standard deviation" : "") + (shown.length > 1 ? "; best in bold" : "")),
    element("thead", {}, groups, heads), element("tbody", {}, ...rows)));
}

function tableCell(column, values, best) {
  const value = mean(values), plus = column.format ? null : spread(values);
  const leads = value != null && best !== false && column.better && column.better * value >= best - 1e-9;
  const cell = element("td", { class: `${column.first ? "first" : ""}${leads ? " best" : ""}` }, (column.format || show.value)(value), plus != null ? element("small", {}, ` ${plusMinus(plus)}`) : null);
  if (column.bar && value != null && value >= 0 && value <= 1) {
    const bar = element("span", { class: "bar" }, element("span"));
    bar.firstChild.style.width = `${100 * value}%`;
    cell.append(bar);
  }
  return cell;
}

function sectionFigures(data) {
  data.figures.forEach((figure, index) => {
    const host = document.querySelector(`[data-section="${index}"]`);
    if (!host || !figure) return;
    const spec = { whatItShows: host.dataset.heading };
    const draw = () => (figure.kind === "bars" ? bars(host, { ...figure, ...spec })
      : lineChart(host, { ...spec, series: figure.series.map(([name, points], place) => ({ name, index: place, points })), x: { name: figure.x }, y: { name: figure.y } }));
    shownFigures.push({ plot: host, line: element("p"), draw });
  });
}

function progress() {
  const host = document.getElementById("live");
  if (!host) return;
  const { data } = numbers, [run] = data.runs;
  const ended = run.done >= run.total, left = run.done ? (run.seconds / run.done) * (run.total - run.done) : null;
  const text = ended ? `Finished: all ${run.total} rounds.` : `Round ${run.done} of ${run.total}. ` +
    (run.done ? `${show.value(run.done / run.seconds)} rounds per second, about ${show.seconds(left)} left. ` : "") + `Last round stored ${show.seconds(Math.round(data.age))} ago.`;
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
    else { numbers.data.age = fresh.age; progress(); }
  } catch {
    document.documentElement.dataset.lost = "yes";
    wait = 5000;
  }
  setTimeout(poll, wait);
}

function copyButtons() {
  document.querySelectorAll("pre.command").forEach((block) => {
    const button = element("button", { type: "button", class: "quiet copy", onclick: async () => {
      await navigator.clipboard.writeText(block.querySelector("code").textContent);
      button.textContent = "Copied";
    } }, "Copy");
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

document.querySelectorAll("input[data-run]").forEach((box) => box.addEventListener("change", () => {
  const place = Number(box.dataset.run);
  if (box.checked) state.off.delete(place); else state.off.add(place);
  update();
}));

let width = window.innerWidth, waiting = null;
window.addEventListener("resize", () => {
  if (window.innerWidth === width) return;
  width = window.innerWidth;
  clearTimeout(waiting);
  waiting = setTimeout(update, 120);
});

themeButton();
copyButtons();
start(JSON.parse(document.getElementById("numbers").textContent));
document.documentElement.dataset.ready = "yes";
if (LIVE) setTimeout(poll, 1000);
