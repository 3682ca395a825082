// What was run, drawn: the schedules and the data.

// One small plot per rate that changes or differs between runs: over rounds, and over the steps of a round.
function scheduleFigure(numbers) {
  const planned = numbers.labels
    .map((label) => numbers.data.runs.find((run) => run.label === label && run.plan))
    .filter(Boolean);
  if (!planned.length) return null;
  return {
    id: "schedules",
    heading: "Schedules: what clients do between two aggregations",
    wide: true,
    file: "schedules",
    note: () => ratesNote(planned),
    draw(host, state) {
      host.replaceChildren();
      const visible = planned.filter((run) => !state.hidden.has(run.label));
      ratePanels(host, planned, visible, (label) => numbers.index(label));
    },
  };
}

// Rates that change or differ, and rates that are the same everywhere.
function sortedRates(planned) {
  const rates = [
    ...new Set(planned.flatMap((run) => run.plan.first.flatMap((columns) => Object.keys(columns)))),
  ].filter((name) => name !== "step");
  const seen = (rate) =>
    new Set(
      planned.flatMap((run) => [...run.plan.first, ...run.plan.last].flatMap((columns) => known(columns[rate] || []))),
    );
  const always = ["lr", "weight_decay", "K"];
  const constant = rates.filter((rate) => seen(rate).size === 1 && !always.includes(rate));
  const drawn = [
    ...always.filter((rate) => rates.includes(rate)),
    ...rates.filter((rate) => !always.includes(rate) && !constant.includes(rate)),
  ];
  return { drawn, fixed: constant.map((rate) => `${plain(rate)} ${show.tick([...seen(rate)][0])}`) };
}

function ratesNote(planned) {
  const { fixed } = sortedRates(planned);
  const unknown = [...new Set(planned.flatMap((run) => run.plan.unknown))];
  return (
    `A client with ${planned[0].plan.samples} samples. Over rounds: solid at the first local step, dotted at the last. ` +
    `Within a round: solid in the first round, dashed in the last.${fixed.length ? ` Everywhere the same: ${fixed.join(", ")}.` : ""}` +
    (unknown.length ? ` Not drawn, because only the run can tell: ${unknown.join("; ")}.` : "")
  );
}

function ratePanels(host, planned, visible, index) {
  const { drawn } = sortedRates(planned);
  for (const rate of drawn)
    smallPlot(host, `${rateName(rate)} over rounds`, overRounds(index, visible, rate), AXES.round);
  for (const rate of drawn) {
    if (rate === "K" || rate.startsWith("server")) continue;
    smallPlot(host, `${rateName(rate)} within a round`, withinRound(index, visible, rate), {
      name: "local step",
      whole: true,
      format: show.round,
    });
  }
}

// The rates of one plan that a page without runs shows: the panels, and the first rounds step by step.
function planSection(host, { label, plan }) {
  const planned = [{ label, plan }];
  host.replaceChildren(element("p", { class: "sub" }, ratesNote(planned)));
  const panels = element("div", { class: "plot schedules" });
  host.append(panels);
  ratePanels(panels, planned, planned, () => 0);
  for (const rate of sortedRates(planned).drawn) {
    if (rate === "K" || rate.startsWith("server")) continue;
    const series = stepByStep(plan, rate);
    if (new Set(series.flatMap((one) => known(one.points.map(([, y]) => y)))).size < 2) continue;
    const title = `${rateName(rate)}, step by step in the first rounds`;
    const plot = element("div", { class: "inner-plot" });
    host.append(plot);
    const x = { name: "round", whole: true, format: show.round, tip: (at) => `round ${Math.floor(at + 1e-9)}` };
    lineChart(plot, { series, endLabels: false, x, y: { name: title, zero: true }, whatItShows: title });
  }
}

// Each round is a line of its own: between the last step of a round and the first of the next there is nothing.
function stepByStep(plan, rate) {
  const rounds = Object.keys(plan.inside).map(Number);
  const whole = rounds.filter((round, i) => round === rounds[0] + i);
  if (whole.length < 2) return [];
  return plan.first.flatMap((_, phase) => {
    const points = whole.flatMap((round, i) => {
      const columns = plan.inside[round][phase];
      const steps = (columns[rate] || []).map((value, step) => [
        round + columns.step[step] / Math.max(1, columns.step.at(-1) + 1),
        value,
      ]);
      return i ? [[round, null], ...steps] : steps;
    });
    const name = plan.first.length > 1 ? `phase ${phase + 1}` : rateName(rate);
    return points.some(([, y]) => y != null) ? [{ name, index: phase, points, marks: points.length <= 120 }] : [];
  });
}

const rateName = (rate) => ({ lr: "learning rate", K: "local steps K" })[rate] || plain(rate);

function smallPlot(host, title, series, x) {
  if (!series.some((one) => one.points.length)) return;
  const plot = element("div", { class: "inner-plot" });
  host.append(element("div", { class: "panel" }, plot));
  lineChart(plot, { series, endLabels: false, x, y: { name: title, zero: true }, height: "small", whatItShows: title });
}

const phaseName = (run, phase) => (run.plan.first.length > 1 ? `${run.label}, phase ${phase + 1}` : run.label);
const phaseDash = (phase) => (phase ? DASHES[phase % DASHES.length] : undefined);

function overRounds(index, runs, rate) {
  return runs.flatMap((run) =>
    run.plan.first.flatMap((columns, phase) => {
      const line = (values) => run.plan.rounds.map((round, i) => [round, values[i]]).filter(([, y]) => y != null);
      const first = columns[rate] || [],
        last = run.plan.last[phase][rate] || [];
      const look = { index: index(run.label), marks: false };
      const made = [{ name: phaseName(run, phase), points: line(first), dashes: phaseDash(phase), ...look }];
      if (first.some((value, i) => value !== last[i]))
        made.push({ name: `${phaseName(run, phase)}, last step`, points: line(last), dashes: "1.5 4", ...look });
      return made;
    }),
  );
}

function withinRound(index, runs, rate) {
  return runs.flatMap((run) => {
    const rounds = Object.entries(run.plan.inside);
    const ends = rounds.length > 1 ? [rounds[0], rounds.at(-1)] : rounds;
    return ends.flatMap(([round, phases], place) =>
      phases.map((columns, phase) => {
        const points = (columns[rate] || [])
          .map((value, i) => [columns.step[i] + 1, value])
          .filter(([, y]) => y != null);
        return {
          name: ends.length > 1 ? `${phaseName(run, phase)}, round ${round}` : phaseName(run, phase),
          index: index(run.label),
          points,
          marks: points.length === 1 ? undefined : false,
          dashes: place ? "5 4" : phaseDash(phase),
        };
      }),
    );
  });
}

// One picture at a time: seeds often divide the same data differently.
function dataFigure(numbers) {
  const { pictures, runs } = numbers.data;
  if (!pictures.length) return null;
  const name = (place) => {
    const users = runs.filter((run) => run.picture === place),
      seeds = [...new Set(users.map((run) => run.seed))];
    return seeds.length === 1 && new Set(pictures.map((picture) => picture.title)).size === 1
      ? `seed ${seeds[0]}`
      : `division ${place + 1}`;
  };
  const chosen = (state) => pictures[Number(state.picture)] || pictures[0];
  return {
    id: "data",
    heading: "The data: clients by labels",
    wide: true,
    file: "data",
    tools:
      pictures.length > 1
        ? [
            {
              key: "picture",
              name: "division",
              options: Object.fromEntries(pictures.map((_, place) => [String(place), name(place)])),
            },
          ]
        : [],
    note(state) {
      const picture = chosen(state);
      return (
        `${sentence(picture.title)}. ${picture.total} clients${picture.clients.length < picture.total ? `, ${picture.clients.length} drawn` : ""}` +
        `${picture.new.some(Boolean) ? "; new users in orange" : ""}. ` +
        (picture.counts.length
          ? "The stronger a cell's colour, the more rows of that label a client has (by the root of the count)."
          : "There are no labels to draw.")
      );
    },
    draw: (host, state) => heatMap(host, chosen(state)),
  };
}
