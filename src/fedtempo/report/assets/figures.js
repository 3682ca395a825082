// The figures of the page. Each has a heading, a line that says what it shows, and a function that draws it.

const usersName = (state) => (state.users === "new" ? "New users" : "Existing users");
const whenName = (state) => (state.when === "after" ? "after fine-tuning" : "before fine-tuning");
const group = (state) => `${state.users}_${state.when}`;
const yAxis = (state) => ({
  name: `${plain(state.metric)}, ${STATISTICS[state.statistic]} over users`,
  share: numbers.share(state.metric),
});

const scorePoints = (state, axis) => (run) => {
  if (axis !== "round" && !run.curve[axis]) return []; // a run without a clock
  const values = run.curve.scores[state.metric]?.[group(state)]?.[state.statistic] || [];
  return run.curve.round.map((round, i) => [axis === "round" ? round : run.curve[axis][i], values[i], round]);
};

// Differences of a sum so far: what happened since the round drawn before.
const perInterval = (run, name, over) =>
  run.rounds.round.map((round, i) => {
    const before = i ? run.rounds[name][i - 1] : 0,
      count = run.rounds[name][i] - before;
    if (!over) return [round, count, round];
    const base = run.rounds[over][i] - (i ? run.rounds[over][i - 1] : 0);
    return [round, base ? count / base : null, round];
  });

const seedsNote = (numbers, state) =>
  numbers.several
    ? state.seeds === "each"
      ? " One line per seed."
      : ` Line: mean over seeds; band: its 95 % interval${numbers.shown(state).length > BANDS ? `, where at most ${BANDS} are in sight` : ""}.`
    : "";

const part = (numbers) =>
  numbers.data.runs
    .filter((run) => run.curve.part)
    .slice(0, 1)
    .map((run) => ` (${run.curve.part} part)`)
    .join("");

function curvesFigure(numbers) {
  return {
    id: "curves",
    heading: "Learning curves",
    wide: true,
    file: "curves",
    zooms: true,
    note: (state) =>
      `${usersName(state)} ${whenName(state)}, at every evaluation${part(numbers)}.${seedsNote(numbers, state)}`,
    draw: (host, state) =>
      lineChart(host, {
        series: numbers.series(state, scorePoints(state, "round")),
        x: AXES.round,
        y: yAxis(state),
        height: "tall",
        whatItShows: `Learning curves of ${usersName(state).toLowerCase()} ${whenName(state)}`,
        empty: "No round has been evaluated yet.",
      }),
  };
}

function tuningFigure(numbers) {
  return {
    id: "tuning",
    heading: "What fine-tuning does, for existing and for new users",
    wide: true,
    file: "results",
    note: (state) =>
      `Hollow: before fine-tuning; filled: after. ${sentence(plain(state.metric))}, ${STATISTICS[state.statistic]} over users, in the round that counts.` +
      (numbers.several ? " Ticks: single seeds, after." : ""),
    draw(host, state) {
      host.replaceChildren();
      const kinds = numbers.hasNew ? ["existing", "new"] : ["existing"];
      const panels = kinds.map((kind) => ({ kind, rows: tuningRows(numbers, state, kind) }));
      const all = panels.flatMap(({ rows }) => rows.flatMap((row) => [row.before, row.after, ...row.seeds]));
      const domain = padded(known(all), yAxis(state));
      for (const { kind, rows } of panels) {
        const panel = element("div", { class: "panel" });
        host.append(panel);
        dumbbells(panel, {
          rows,
          domain,
          heading: `${kind} users`,
          whatItShows: `${plain(state.metric)} of ${kind} users`,
          empty: "No round has been evaluated yet.",
        });
      }
    },
  };
}

function tuningRows(numbers, state, kind) {
  return numbers
    .shown(state)
    .map(([label, runs]) => {
      const [before, after] = ["before", "after"].map((when) =>
        numbers.finals(runs, state.metric, `${kind}_${when}`, state.statistic),
      );
      return { name: label, index: numbers.index(label), before: mean(before), after: mean(after), seeds: after };
    })
    .filter((row) => row.before != null || row.after != null);
}

function usersFigure(numbers) {
  const sorted = (state) => (runs) => {
    const values = known(runs.flatMap((run) => run.users?.[state.users]?.[state.when][state.metric] || []));
    values.sort((a, b) => (numbers.lower(state.metric) ? b - a : a - b));
    return values.map((value, i) => [(i + 0.5) / values.length, value]);
  };
  return {
    id: "users",
    heading: "Every user, from worst to best",
    file: "users",
    zooms: true,
    note: (state) =>
      `${usersName(state)} ${whenName(state)}. The grey strip is the worst tenth.${numbers.several ? (state.seeds === "each" ? " One line per seed." : " Users of all seeds together.") : ""}`,
    draw(host, state) {
      const series = numbers.shown(state).flatMap(([label, runs]) => {
        const index = numbers.index(label);
        if (state.seeds !== "each" || runs.length < 2)
          return [{ name: label, index, marks: false, points: sorted(state)(runs) }];
        return runs.map((run) => ({ name: numbers.named(run), index, thin: true, points: sorted(state)([run]) }));
      });
      lineChart(host, {
        series,
        endLabels: false,
        x: {
          name: "share of users",
          format: show.share,
          domain: [0, 1],
          tip: (x) => `${show.share(x)} of users are worse off`,
        },
        y: { name: plain(state.metric), share: numbers.share(state.metric) },
        shade: { from: 0, to: 0.1, name: "worst tenth" },
        height: "medium",
        whatItShows: `Sorted scores of ${usersName(state).toLowerCase()} ${whenName(state)}`,
        empty: "No round has been evaluated yet.",
      });
    },
  };
}

// Time and energy of the devices are costs only where some run has a clock.
function costAxes(numbers) {
  const axes = { bytes: "bytes", steps: "steps", flops: "FLOPs", seconds: "seconds" };
  if (numbers.data.runs.some((run) => run.curve.time)) axes.time = "device time";
  if (numbers.data.runs.some((run) => run.curve.energy)) axes.energy = "energy";
  return axes;
}

function costFigure(numbers) {
  return {
    id: "cost",
    heading: "Score against cost",
    file: "curves",
    zooms: true,
    tools: [
      { key: "axis", name: "cost", options: costAxes(numbers) },
    ],
    note: (state) => `${usersName(state)} ${whenName(state)}, against what all clients together had spent by then.`,
    draw: (host, state) =>
      lineChart(host, {
        series: numbers.series(state, scorePoints(state, state.axis)),
        endLabels: false,
        x: AXES[state.axis],
        y: yAxis(state),
        height: "medium",
        whatItShows: `${plain(state.metric)} against cost`,
        empty: "No round has been evaluated yet.",
      }),
  };
}

function lossFigure(numbers) {
  const beside = [hasRefused(numbers), hasClipping(numbers)].filter(Boolean).length;
  return {
    id: "loss",
    heading: "Training loss",
    file: "rounds",
    zooms: true,
    wide: beside !== 1,
    note: (state) => `Mean over the clients of each round, while they train.${seedsNote(numbers, state)}`,
    draw: (host, state) =>
      lineChart(host, {
        series: numbers.series(state, (run) => run.rounds.round.map((round, i) => [round, run.rounds.loss[i], round]), {
          marks: false,
        }),
        endLabels: false,
        x: AXES.round,
        y: { name: "loss" },
        height: "medium",
        whatItShows: "Training loss",
      }),
  };
}

const hasRefused = (numbers) => numbers.data.runs.some((run) => run.rounds.refused.at(-1) > 0);
const hasClipping = (numbers) => numbers.data.runs.some((run) => run.rounds.clipped);

function refusedFigure(numbers) {
  const total = numbers.data.runs.reduce((sum, run) => sum + (run.rounds.refused.at(-1) || 0), 0);
  const asked = numbers.data.runs.reduce((sum, run) => sum + (run.rounds.asked.at(-1) || 0), 0);
  const abandoned = numbers.data.runs.reduce((sum, run) => sum + run.abandoned, 0);
  return {
    id: "refused",
    heading: "Refused uploads",
    file: "rounds",
    zooms: total > 0,
    wide: total === 0,
    note: () =>
      total
        ? `${total} of ${asked} uploads did not count${abandoned ? `; ${abandoned} rounds were abandoned` : ""}. Drawn as the sum so far.`
        : "",
    draw(host, state) {
      host.replaceChildren();
      if (!total) {
        host.append(element("p", { class: "fine" }, `None: all ${asked} uploads of all runs were admitted.`));
        return;
      }
      const plot = element("div", { class: "inner-plot" });
      host.append(plot);
      lineChart(plot, {
        series: numbers.series(
          state,
          (run) => run.rounds.round.map((round, i) => [round, run.rounds.refused[i], round]),
          { marks: false },
        ),
        endLabels: false,
        x: AXES.round,
        y: { name: "refused so far", zero: true, value: show.count },
        height: "small",
        whatItShows: "Refused uploads so far",
      });
      host.append(reasonsTable(numbers, state));
    },
  };
}

function reasonsTable(numbers, state) {
  const shown = numbers.shown(state);
  const reasons = [...new Set(shown.flatMap(([, runs]) => runs.flatMap((run) => Object.keys(run.reasons))))].sort();
  const count = (runs, reason) => runs.reduce((sum, run) => sum + (run.reasons[reason] || 0), 0);
  const head = element(
    "tr",
    {},
    element("th", { scope: "col" }, "run"),
    ...reasons.map((reason) => element("th", { scope: "col" }, reason)),
  );
  const body = shown.map(([label, runs]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, label),
      ...reasons.map((reason) => element("td", {}, String(count(runs, reason)))),
    ),
  );
  return element(
    "div",
    { class: "scroll" },
    element("table", { class: "small" }, element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

function clippingFigure(numbers) {
  if (!hasClipping(numbers)) return null;
  const clipping = numbers.data.runs.filter((run) => run.rounds.clipped);
  const points = {
    share: (run) => perInterval(run, "clipped", "steps"),
    count: (run) => perInterval(run, "clipped"),
    norm: (run) => perInterval(run, "clipped_norm", "clipped"),
  };
  const names = {
    share: "clipped share of local steps",
    count: "clipped local steps",
    norm: "mean norm before clipping",
  };
  const formats = { share: show.share, count: show.count, norm: show.value };
  const total = clipping.reduce((sum, run) => sum + run.rounds.clipped.at(-1), 0);
  return {
    id: "clipping",
    heading: "Clipped steps",
    file: "rounds",
    zooms: true,
    tools: [{ key: "clip", name: "clipping", options: { share: "share", count: "count", norm: "norm" } }],
    note: () => `${show.count(total)} local steps were shortened in all.`,
    draw: (host, state) =>
      lineChart(host, {
        series: numbers.series(state, (run) => (run.rounds.clipped ? points[state.clip](run) : []), { marks: false }),
        endLabels: false,
        x: AXES.round,
        y: {
          name: names[state.clip],
          zero: true,
          format: state.clip === "share" ? show.share : undefined,
          value: formats[state.clip],
        },
        height: "medium",
        whatItShows: "Clipped steps",
      }),
  };
}
