// What was run, drawn: the schedules and the data.

// One small plot per rate that changes or differs between runs: over rounds, and over the steps of a round.
function scheduleFigure(numbers) {
  const planned = numbers.labels
    .map((label) => numbers.data.runs.find((run) => run.label === label && run.plan))
    .filter(Boolean);
  if (!planned.length) return null;
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
  const fixed = constant.map((rate) => `${plain(rate)} ${show.tick([...seen(rate)][0])}`).join(", ");
  return {
    id: "schedules",
    heading: "Schedules: what clients do between two aggregations",
    wide: true,
    file: "schedules",
    note: () =>
      `A client with ${planned[0].plan.samples} samples, the median. Over rounds: solid at the first local step, dotted at the last. ` +
      `Within a round: solid in the first round, dashed in the last.${fixed ? ` Everywhere the same: ${fixed}.` : ""}`,
    draw(host, state) {
      host.replaceChildren();
      const visible = planned.filter((run) => !state.hidden.has(run.label));
      for (const rate of drawn)
        smallPlot(host, `${rateName(rate)} over rounds`, overRounds(numbers, visible, rate), AXES.round);
      for (const rate of drawn) {
        if (rate === "K" || rate.startsWith("server")) continue;
        smallPlot(host, `${rateName(rate)} within a round`, withinRound(numbers, visible, rate), {
          name: "local step",
          whole: true,
          format: show.round,
        });
      }
    },
  };
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

function overRounds(numbers, runs, rate) {
  return runs.flatMap((run) =>
    run.plan.first.flatMap((columns, phase) => {
      const line = (values) => run.plan.rounds.map((round, i) => [round, values[i]]).filter(([, y]) => y != null);
      const first = columns[rate] || [],
        last = run.plan.last[phase][rate] || [];
      const look = { index: numbers.index(run.label), marks: false };
      const made = [{ name: phaseName(run, phase), points: line(first), dashes: phaseDash(phase), ...look }];
      if (first.some((value, i) => value !== last[i]))
        made.push({ name: `${phaseName(run, phase)}, last step`, points: line(last), dashes: "1.5 4", ...look });
      return made;
    }),
  );
}

function withinRound(numbers, runs, rate) {
  return runs.flatMap((run) =>
    Object.entries(run.plan.inside).flatMap(([round, phases], place) =>
      phases.map((columns, phase) => {
        const points = (columns[rate] || [])
          .map((value, i) => [columns.step[i] + 1, value])
          .filter(([, y]) => y != null);
        const name =
          Object.keys(run.plan.inside).length > 1 ? `${phaseName(run, phase)}, round ${round}` : phaseName(run, phase);
        return {
          name,
          index: numbers.index(run.label),
          points,
          marks: points.length === 1 ? undefined : false,
          dashes: place ? "5 4" : phaseDash(phase),
        };
      }),
    ),
  );
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
