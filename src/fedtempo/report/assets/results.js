// The results in numbers: the best of each question in large type, and the table.

// The best run in sight for each question, or the only one.
function tiles() {
  const shown = numbers.shown(state),
    host = document.getElementById("tiles");
  const kinds = numbers.hasNew ? ["existing", "new"] : ["existing"];
  const questions = kinds.flatMap((kind) =>
    [
      ["mean", `${kind} users`],
      ["bottom_decile", `${kind} users, ${decileName(shown, kind)}`],
    ].map(([statistic, name]) => ({ kind, statistic, name })),
  );
  host.replaceChildren(
    ...questions
      .map(({ kind, statistic, name }) => {
        const ranked = shown
          .map(([label, runs]) => ({
            label,
            values: numbers.finals(runs, state.metric, `${kind}_after`, statistic),
            before: mean(numbers.finals(runs, state.metric, `${kind}_before`, statistic)),
          }))
          .filter(({ values }) => values.length)
          .sort((a, b) => (numbers.lower(state.metric) ? 1 : -1) * (mean(a.values) - mean(b.values)));
        if (!ranked.length) return null;
        const [best] = ranked,
          many = shown.length > 1;
        const under = many
          ? element("span", { class: "who" }, swatch(numbers.index(best.label)), best.label)
          : element("span", { class: "who" }, `${show.value(best.before)} before fine-tuning`);
        const plus = half(best.values);
        return element(
          "div",
          { class: "tile" },
          element("span", { class: "what" }, (many ? "best for " : "") + name),
          element(
            "span",
            { class: "number" },
            show.value(mean(best.values)),
            plus != null ? element("small", {}, ` ${plusMinus(plus)}`) : null,
          ),
          under,
        );
      })
      .filter(Boolean),
  );
}

const COLUMNS = [
  ["before", "mean", "before"],
  ["after", "mean", "after"],
  ["after", "bottom_decile", null],
  ["after", "std", "std"],
];
const COSTS = { bytes: show.bytes, steps: show.large, flops: show.large, seconds: show.seconds };

const decileName = (shown, kind) =>
  numbers.decile(
    shown.flatMap(([, runs]) => runs),
    kind,
  );

// A column knows its name, its numbers (one per run of a label) and, where that can be said, which are better.
function scoreColumns(kind, shown) {
  const lower = numbers.lower(state.metric);
  return COLUMNS.map(([when, statistic, name], place) => ({
    name: name ?? decileName(shown, kind),
    first: place === 0,
    values: (runs) => numbers.finals(runs, state.metric, `${kind}_${when}`, statistic),
    bySeed: (runs) => numbers.bySeed(runs, state.metric, `${kind}_${when}`, statistic),
    bar: when === "after" && statistic === "mean" && !lower && numbers.share(state.metric),
    better: statistic === "std" || lower ? -1 : 1,
  }));
}

function costColumns() {
  return Object.entries(COSTS).map(([name, format], place) => ({
    name: name === "flops" ? "FLOPs" : name,
    first: place === 0,
    format,
    values: (runs) => numbers.cost(runs, name),
  }));
}

function table() {
  const shown = numbers.shown(state);
  const scored = shown.some(([, runs]) => runs.some((run) => run.final));
  const kinds = scored ? (numbers.hasNew ? ["existing", "new"] : ["existing"]) : [];
  const groups = [...kinds.map((kind) => [`${kind} users`, scoreColumns(kind, shown)]), ["cost", costColumns()]];
  const columns = groups.flatMap(([, list]) => list);
  const rows = shown.map(([label, runs]) => tableRow(label, runs, columns, shown));
  const grid = element(
    "table",
    { "aria-describedby": "table-title" },
    tableHead(groups),
    element("tbody", {}, ...rows),
  );
  const title = element("p", { class: "sub", id: "table-title" }, tableTitle(shown.length));
  document.getElementById("table").replaceChildren(title, element("div", { class: "scroll" }, grid));
}

function tableTitle(count) {
  const { part } = numbers.data;
  const what = part ? `${sentence(plain(state.metric))} on the ${part} part, in the round that counts` : "Costs so far";
  const seeds = numbers.several ? "; mean ± half of the 95 % interval over seeds" : "";
  const lower = part && numbers.lower(state.metric) ? "; lower is better" : "";
  const missing = numbers.undefinedUsers(state);
  const left = missing ? ` It is undefined for up to ${missing} users of a run, who are left out.` : "";
  return `${what}${lower}${seeds}${count > 1 && part ? "; bold: what cannot be told from the best" : ""}.${left}`;
}

function tableHead(groups) {
  const over = groups.map(([name, list]) =>
    element("th", { colspan: list.length, scope: "colgroup", class: "first" }, name),
  );
  const names = groups.flatMap(([, list]) => list).map((column) => heading(column.name, column.first ? "first" : ""));
  return element(
    "thead",
    {},
    element("tr", {}, element("th"), ...over),
    element("tr", {}, heading("run", ""), ...names),
  );
}

const heading = (name, kind) => element("th", { scope: "col", class: kind }, name);

function tableRow(label, runs, columns, shown) {
  const name = element("th", { scope: "row", title: label }, swatch(numbers.index(label)), element("span", {}, label));
  return element(
    "tr",
    {},
    name,
    ...columns.map((column) => tableCell(column, column.values(runs), leads(column, runs, shown))),
  );
}

// Whether these runs cannot be told from the best of those in sight: the interval of the difference over common seeds
// holds 0. One seed tells nothing, so that only equal numbers are level.
function leads(column, runs, shown) {
  if (!column.better || shown.length < 2) return false;
  const mine = mean(column.values(runs));
  if (mine == null) return false;
  const score = (each) => column.better * (mean(column.values(each)) ?? -Infinity);
  const best = shown.map(([, each]) => each).reduce((a, b) => (score(b) > score(a) ? b : a));
  if (best === runs) return true;
  const theirs = column.bySeed(best);
  const gaps = [...column.bySeed(runs)].filter(([seed]) => theirs.has(seed)).map(([seed, v]) => v - theirs.get(seed));
  if (gaps.length < 2) return mine === mean(column.values(best));
  return Math.abs(mean(gaps)) <= half(gaps);
}

function tableCell(column, values, best) {
  const value = mean(values);
  const plus = column.format ? null : half(values);
  const deviation = plus == null ? null : element("small", {}, ` ${plusMinus(plus)}`);
  const kind = `${column.first ? "first" : ""}${best ? " best" : ""}`;
  const cell = element("td", { class: kind }, (column.format || show.value)(value), deviation);
  if (column.bar && value >= 0 && value <= 1) {
    const bar = element("span", { class: "bar" }, element("span"));
    bar.firstChild.style.width = `${100 * value}%`;
    cell.append(bar);
  }
  return cell;
}
