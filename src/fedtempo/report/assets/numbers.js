// Numbers of the runs in sight: seeds put together, statistics, CSV files.

const STATISTICS = {
  mean: "mean",
  weighted_mean: "sample-weighted mean",
  bottom_decile: "bottom decile",
  worst_tenth: "worst tenth",
  worst: "worst",
  std: "standard deviation",
};
const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);
// Half of Student's 95 % interval of a mean over seeds.
function half(values) {
  const count = values.length;
  if (count < 2) return null;
  const deviation = Math.sqrt(values.reduce((sum, v) => sum + (v - mean(values)) ** 2, 0) / (count - 1));
  return (numbers.data.student[count - 2] * deviation) / Math.sqrt(count);
}
const plusMinus = (number) => `±${number < 10 ? number.toFixed(3) : show.value(number)}`;
const known = (values) => values.filter((value) => value != null);

class Numbers {
  constructor(data) {
    this.data = data;
    this.labels = [...new Set(data.runs.map((run) => run.label))];
    this.several = this.labels.some((label) => data.runs.filter((run) => run.label === label).length > 1);
    this.hasNew = data.runs.some((run) => run.final?.users.new_after || run.curve.scores[data.metric]?.new_after);
    this.hasScores = data.runs.some((run) => run.curve.round.length);
  }

  index(label) {
    return this.labels.indexOf(label);
  }

  lower(metric) {
    return this.data.lower.includes(metric);
  }

  // Whether all scores lie in [0, 1], so that an axis may end there.
  share(metric) {
    return this.data.shares.includes(metric);
  }

  // Users in sight for whom the metric says nothing: they are in no statistic.
  undefinedUsers(state) {
    const groups = this.shown(state).flatMap(([, runs]) =>
      runs.flatMap((run) => Object.values(run.final?.scores[state.metric] || {})),
    );
    return Math.max(0, ...groups.map((group) => group.undefined || 0));
  }

  // Labels in sight, each with its runs in sight.
  shown(state) {
    return this.labels
      .filter((label) => !state.hidden.has(label))
      .map((label) => [label, this.data.runs.filter((run, place) => run.label === label && !state.off.has(place))])
      .filter(([, runs]) => runs.length);
  }

  named(run) {
    return this.several && run.seed != null ? `${run.label}, seed ${run.seed}` : run.label;
  }

  // One series per label with the interval over seeds, or one per run. `points` turns a run into [x, y, key] triples;
  // points of seeds with the same key are put together.
  series(state, points, options = {}) {
    const made = [];
    for (const [label, runs] of this.shown(state)) {
      const index = this.index(label),
        each = runs.map(points).map((list) => list.filter(([x, y]) => x != null && y != null));
      if (state.seeds === "each" && runs.length > 1) {
        runs.forEach((run, place) =>
          made.push({ name: this.named(run), index, thin: true, points: each[place], ...options }),
        );
        continue;
      }
      const together = combined(each);
      const ranged = together.some(([, , low, high]) => high > low);
      made.push({
        name: label,
        index,
        points: together,
        band: ranged ? together.map(([x, , low, high]) => [x, low, high]) : null,
        fit: ranged ? together.map(([x, , , , low, high]) => [x, low, high]) : null,
        ...options,
      });
    }
    return made;
  }

  // A number of the table for each run in sight of a label.
  finals(runs, metric, group, statistic) {
    return known(runs.map((run) => run.final?.scores[metric]?.[group]?.[statistic]));
  }

  // The same by seed.
  bySeed(runs, metric, group, statistic) {
    const found = runs.map((run) => [run.seed, run.final?.scores[metric]?.[group]?.[statistic]]);
    return new Map(found.filter(([seed, value]) => seed != null && value != null));
  }

  // What the bottom decile is of these users; of fewer than ten it is the worst one.
  decile(runs, kind) {
    const counts = [...new Set(known(runs.map((run) => run.final?.users[`${kind}_after`])))];
    if (!counts.length || Math.max(...counts) >= 10) return "bottom decile";
    return counts.length === 1 ? `worst of ${counts[0]}` : "worst user";
  }

  cost(runs, name) {
    return known(runs.map((run) => run.rounds[name].at(-1) ?? 0));
  }
}

function combined(lists) {
  if (lists.length === 1) return lists[0].map(([x, y]) => [x, y]);
  const groups = new Map();
  for (const list of lists) {
    for (const [x, y, key] of list) {
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push([x, y]);
    }
  }
  const points = [...groups.values()].map((members) => {
    const ys = members.map(([, y]) => y);
    const middle = mean(ys),
      around = half(ys) ?? 0;
    return [mean(members.map(([x]) => x)), middle, middle - around, middle + around, Math.min(...ys), Math.max(...ys)];
  });
  return points.sort((a, b) => a[0] - b[0]);
}

// A spreadsheet takes a cell that begins with = + - @ for a formula; a quote before it keeps it a text.
function cellText(value) {
  if (value == null) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function download(name, header, rows) {
  const text = [header, ...rows].map((row) => row.map(cellText).join(",")).join("\r\n") + "\r\n";
  offer(name, new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
}

const GROUPS = {
  existing_before: "existing users, before",
  existing_after: "existing users, after",
  new_before: "new users, before",
  new_after: "new users, after",
};

// What each CSV button saves; every file begins with run and seed.
const files = {
  curves(data) {
    const header = [
      "run",
      "seed",
      "round",
      "bytes",
      "steps",
      "flops",
      "seconds",
      "time",
      "energy",
      "part",
      "metric",
      "users",
      ...Object.keys(STATISTICS),
    ];
    const rows = [];
    for (const run of data.runs)
      for (const [metric, groups] of Object.entries(run.curve.scores))
        for (const [group, columns] of Object.entries(groups))
          run.curve.round.forEach((round, i) =>
            rows.push([
              run.label,
              run.seed,
              round,
              run.curve.bytes[i],
              run.curve.steps[i],
              run.curve.flops[i],
              run.curve.seconds[i],
              run.curve.time?.[i],
              run.curve.energy?.[i],
              run.curve.part,
              metric,
              group,
              ...Object.keys(STATISTICS).map((name) => columns[name][i]),
            ]),
          );
    return [header, rows];
  },
  rounds(data) {
    const names = [
      "round",
      "loss",
      "bytes",
      "steps",
      "flops",
      "seconds",
      "time",
      "energy",
      "asked",
      "refused",
      "clipped",
      "clipped_norm",
    ];
    const header = [
      "run",
      "seed",
      ...names.map((name) => (name === "round" || name === "loss" ? name : `${name}_so_far`)),
    ];
    return [
      header,
      data.runs.flatMap((run) =>
        run.rounds.round.map((_, i) => [run.label, run.seed, ...names.map((name) => run.rounds[name]?.[i])]),
      ),
    ];
  },
  users(data) {
    const header = [
      "run",
      "seed",
      "round",
      "part",
      "users",
      "client",
      "name",
      "samples",
      ...data.metrics.flatMap((m) => [`${m}_before`, `${m}_after`]),
    ];
    const rows = [];
    for (const run of data.runs)
      for (const [kind, table] of Object.entries(run.users || {}))
        table.client.forEach((client, i) =>
          rows.push([
            run.label,
            run.seed,
            run.final.round,
            run.final.part,
            kind,
            client,
            data.pictures[run.picture]?.names?.[client],
            table.samples[i],
            ...data.metrics.flatMap((m) => [table.before[m]?.[i], table.after[m]?.[i]]),
          ]),
        );
    return [header, rows];
  },
  results(data) {
    const header = [
      "run",
      "seed",
      "round",
      "part",
      "metric",
      "users",
      ...Object.keys(STATISTICS),
      "bytes",
      "steps",
      "flops",
      "seconds",
      "digest",
    ];
    const rows = [];
    for (const run of data.runs) {
      const costs = ["bytes", "steps", "flops", "seconds"].map((name) => run.rounds[name].at(-1));
      for (const [metric, groups] of Object.entries(run.final?.scores || {}))
        for (const [group, values] of Object.entries(groups))
          rows.push([
            run.label,
            run.seed,
            run.final.round,
            run.final.part,
            metric,
            group,
            ...Object.keys(STATISTICS).map((name) => values[name]),
            ...costs,
            run.digest,
          ]);
      if (!run.final)
        rows.push([
          run.label,
          run.seed,
          null,
          null,
          null,
          null,
          ...Object.keys(STATISTICS).map(() => null),
          ...costs,
          run.digest,
        ]);
    }
    return [header, rows];
  },
  data(data) {
    const rows = data.pictures.flatMap((picture) =>
      picture.clients.flatMap((client, i) =>
        picture.counts.map((counts, label) => [
          picture.title,
          client,
          picture.names?.[client],
          picture.new[i] ? "new" : "existing",
          picture.rows[i],
          label,
          counts[i],
        ]),
      ),
    );
    return [["data", "client", "name", "users", "rows", "label", "rows_of_label"], rows];
  },
  schedules(data) {
    const rows = data.runs.flatMap((run) =>
      run.plan
        ? run.plan.first.flatMap((columns, phase) =>
            Object.entries(columns).flatMap(([rate, values]) =>
              rate === "step"
                ? []
                : values.map((value, i) => [
                    run.label,
                    run.seed,
                    phase + 1,
                    rate,
                    run.plan.rounds[i],
                    value,
                    run.plan.last[phase][rate]?.[i],
                  ]),
            ),
          )
        : [],
    );
    return [["run", "seed", "phase", "rate", "round", "first_step", "last_step"], rows];
  },
};
