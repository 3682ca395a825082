// Figures that are not lines: before and after fine-tuning, clients by labels, bars.

// rows: [{ name, index, before, after, seeds }]; all panels of a figure share the domain.
function dumbbells(host, spec) {
  host.replaceChildren();
  if (!spec.rows.length) {
    host.append(element("p", { class: "empty" }, spec.empty || "Nothing to draw yet."));
    return;
  }
  const width = Math.max(280, Math.round(host.clientWidth || 480));
  const longest = Math.max(...spec.rows.map((row) => short(row.name, 18).length));
  const left = Math.min(width * 0.34, 14 + longest * 7),
    right = 92,
    line = 32,
    top = 26;
  const height = top + spec.rows.length * line + 30;
  const x = scale(spec.domain, [left, width - right]);
  const said = spec.rows.map((row) => `${row.name}: ${show.value(row.before)} before, ${show.value(row.after)} after`);
  const label = `${spec.whatItShows}, before and after fine-tuning. ${said.join("; ")}.`;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label });
  for (const value of ticks(...spec.domain, Math.max(2, Math.floor((width - left - right) / 70)))) {
    svg.append(shape("line", { x1: x(value), x2: x(value), y1: top - 6, y2: height - 26, class: "grid" }));
    svg.append(words(show.tick(value), x(value), height - 10, "tick", { "text-anchor": "middle" }));
  }
  svg.append(words(spec.heading, left, 12, "name strong"));
  spec.rows.forEach((row, position) => svg.append(dumbbell(row, x, top + position * line + line / 2 - 4, left, width)));
  host.append(svg);
}

function dumbbell(row, x, y, left, width) {
  const group = shape(
    "g",
    {},
    shape("title", {}, `${row.name}: ${show.value(row.before)} before, ${show.value(row.after)} after fine-tuning`),
  );
  group.append(words(short(row.name, 18), left - 12, y + 4, "row", { "text-anchor": "end" }));
  for (const seed of row.seeds) {
    if (seed != null && row.seeds.length > 1)
      group.append(
        shape("line", { x1: x(seed), x2: x(seed), y1: y + 7, y2: y + 12, stroke: colour(row.index), class: "seed" }),
      );
  }
  if (row.before != null && row.after != null)
    group.append(
      shape("line", { x1: x(row.before), x2: x(row.after), y1: y, y2: y, stroke: colour(row.index), class: "bridge" }),
    );
  if (row.before != null) group.append(mark(row.index, x(row.before), y, 4.5, true));
  if (row.after != null) group.append(mark(row.index, x(row.after), y, 5.5));
  group.append(
    words(`${show.value(row.before)} → ${show.value(row.after)}`, width, y + 4, "value", { "text-anchor": "end" }),
  );
  return group;
}

function bars(host, spec) {
  host.replaceChildren();
  const width = Math.max(280, Math.round(host.clientWidth || 640)),
    line = 28;
  const left = Math.min(width * 0.42, 16 + 7 * Math.max(4, ...spec.values.map(([name]) => short(name, 30).length)));
  const height = spec.values.length * line + 8;
  const numbers = spec.values.map(([, value]) => value ?? 0);
  const x = scale([Math.min(0, ...numbers), Math.max(...numbers, 1e-12)], [left, width - 90]);
  const said = spec.values.map(([name, value]) => `${name}: ${show.value(value)}${spec.unit}`).join("; ");
  const svg = shape("svg", {
    viewBox: `0 0 ${width} ${height}`,
    class: "chart",
    role: "img",
    "aria-label": `${spec.whatItShows}. ${said}.`,
  });
  spec.values.forEach(([name, value], position) => {
    const y = position * line + 4,
      to = x(value ?? 0),
      zero = x(0);
    svg.append(words(short(name, 30), left - 10, y + 16, "row", { "text-anchor": "end" }));
    svg.append(
      shape("rect", {
        x: Math.min(zero, to),
        y: y + 3,
        width: Math.abs(to - zero),
        height: line - 12,
        fill: colour(0),
        rx: 2,
      }),
    );
    svg.append(words(`${show.value(value)}${spec.unit}`, Math.max(zero, to) + 8, y + 16, "value"));
  });
  host.append(svg);
}

// Differences with their intervals: rows of [name, value, low, high, words]; the margin around 0 is shaded.
function forest(host, spec) {
  host.replaceChildren();
  const width = Math.max(320, Math.round(host.clientWidth || 640)),
    wide = width >= 560,
    line = wide ? 30 : 46;
  const longest = Math.max(4, ...spec.rows.map(([name]) => short(name, 34).length));
  const left = wide ? Math.min(width * 0.36, 16 + 7 * longest) : 12,
    right = wide ? 236 : 20,
    top = 12;
  const height = top + spec.rows.length * line + 42;
  const ends = spec.rows.flatMap(([, value, low, high]) => known([value, low, high]));
  const x = scale(padded([...ends, 0, -spec.margin, spec.margin], {}), [left, width - right]);
  const domain = [x.invert(left), x.invert(width - right)];
  const said = spec.rows.map(([name, value, low, high, answer]) => {
    const interval = low == null ? "" : `, 95 % interval ${show.value(low)} to ${show.value(high)}`;
    return `${name}: ${show.value(value)}${interval}, ${answer}`;
  });
  const label = `${spec.whatItShows}: ${spec.x}. ${said.join("; ")}.`;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label });
  const low = height - 34;
  if (spec.margin)
    svg.append(
      shape("rect", { x: x(-spec.margin), y: top, width: x(spec.margin) - x(-spec.margin), height: low - top, class: "shade" }),
    );
  for (const value of ticks(...domain, Math.max(2, Math.floor((width - left - right) / 70)))) {
    svg.append(shape("line", { x1: x(value), x2: x(value), y1: top, y2: low, class: value ? "grid" : "axis" }));
    svg.append(words(show.tick(value), x(value), low + 16, "tick", { "text-anchor": "middle" }));
  }
  svg.append(words(spec.x, width - right, height - 2, "name", { "text-anchor": "end" }));
  spec.rows.forEach(([name, value, from, to, answer], position) => {
    const y = top + position * line + line / 2 + (wide ? 0 : 10);
    const title = wide ? words(short(name, 34), left - 10, y + 4, "row", { "text-anchor": "end" }) : words(`${name}: ${answer}`, left, y - 14, "row");
    const row = shape("g", { class: "difference" }, shape("title", {}, said[position]), title);
    if (from != null) row.append(shape("line", { x1: x(from), x2: x(to), y1: y, y2: y, class: "bridge", stroke: colour(0) }));
    if (value != null) row.append(mark(0, x(value), y, 5));
    if (wide) row.append(words(answer, width - right + 14, y + 4, "value"));
    svg.append(row);
  });
  host.append(svg);
}

// Clients side by side, labels from bottom to top, darker where a client has more rows of a label;
// above it how many rows each client has.
function heatMap(host, picture) {
  host.replaceChildren();
  const width = Math.max(280, Math.round(host.clientWidth || 900)),
    left = 46,
    wide = width - left - 4;
  const labels = picture.counts.length,
    clients = picture.clients.length;
  const barsHigh = 70,
    cell = labels ? Math.max(5, Math.min(20, 260 / labels)) : 0;
  const high = cell * labels,
    top = 20,
    height = top + barsHigh + 8 + high + 36;
  const most = Math.max(1, ...picture.rows),
    peak = Math.max(1, ...picture.counts.map((row) => Math.max(...row)));
  const newcomers = picture.new.filter(Boolean).length;
  const text =
    `${picture.title}. ${picture.total} clients, of them ${clients} drawn and ${newcomers} of those new users; ` +
    `from ${Math.min(...picture.rows)} to ${most} rows each; ${picture.labels} labels, at most ${peak} rows of one label with one client.`;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": text });
  const x = scale([0, clients], [left, left + wide]),
    gap = wide / clients > 5 ? 1 : 0;
  picture.rows.forEach((rows, index) => {
    const size = (rows / most) * barsHigh;
    svg.append(
      shape("rect", {
        x: x(index),
        width: Math.max(0.5, wide / clients - gap),
        y: top + barsHigh - size,
        height: size,
        class: picture.new[index] ? "newcomer" : "client",
      }),
    );
  });
  svg.append(words(`rows per client, up to ${most}`, 0, 12, "name"));
  svg.append(cells(picture, { left, wide, top: top + barsHigh + 8, high, peak }));
  for (const value of ticks(0, Math.max(0, labels - 1), Math.max(1, high / 40), true)) {
    if (!labels) break;
    const name = picture.labels > labels ? Math.round((value * picture.labels) / labels) : value;
    svg.append(
      words(String(name), left - 8, top + barsHigh + 8 + high - (value + 0.5) * cell + 4, "tick", {
        "text-anchor": "end",
      }),
    );
  }
  if (labels) svg.append(words("label", 0, top + barsHigh + 20, "name"));
  svg.append(words("client", left + wide, height - 4, "name", { "text-anchor": "end" }));
  for (const value of ticks(0, clients - 1, Math.max(2, wide / 90), true))
    svg.append(words(String(picture.clients[value]), x(value + 0.5), height - 18, "tick", { "text-anchor": "middle" }));
  host.append(svg, element("div", { class: "tip", hidden: true }));
  svg.addEventListener("pointermove", (event) =>
    pointAt(event, host, svg, picture, { x, width, height, left, top: top + barsHigh + 8, cell, labels, clients }),
  );
  svg.addEventListener("pointerleave", () => {
    host.querySelector(".tip").hidden = true;
  });
}

// All cells of one shade are one path, so a large picture stays light.
function cells(picture, { left, wide, top, high, peak }) {
  const labels = picture.counts.length,
    clients = picture.clients.length,
    shades = 12;
  const paths = Array.from({ length: shades + 1 }, () => []);
  const w = wide / clients,
    h = high / labels,
    gap = w > 5 && h > 5 ? 1 : 0;
  picture.counts.forEach((row, label) =>
    row.forEach((count, client) => {
      if (!count) return;
      const shade = Math.max(1, Math.round(Math.sqrt(count / peak) * shades));
      paths[shade].push(
        `M${(left + client * w).toFixed(2)},${(top + (labels - 1 - label) * h).toFixed(2)}h${(w - gap).toFixed(2)}v${(h - gap).toFixed(2)}h${(gap - w).toFixed(2)}z`,
      );
    }),
  );
  const group = shape("g", {}, shape("rect", { x: left, y: top, width: wide, height: high, class: "ground" }));
  paths.forEach((parts, shade) => {
    if (parts.length)
      group.append(shape("path", { d: parts.join(""), class: "cell", "fill-opacity": (shade / shades).toFixed(3) }));
  });
  return group;
}

function pointAt(event, host, svg, picture, place) {
  const bounds = svg.getBoundingClientRect(),
    ratio = bounds.width / place.width;
  const client = Math.floor(place.x.invert((event.clientX - bounds.left) / ratio));
  const label = place.labels - 1 - Math.floor(((event.clientY - bounds.top) / ratio - place.top) / place.cell);
  const tip = host.querySelector(".tip");
  tip.hidden = client < 0 || client >= place.clients;
  if (tip.hidden) return;
  const number = picture.clients[client],
    name = picture.names ? ` (${picture.names[number]})` : "";
  const kind = picture.new[client] ? "new user" : "existing user";
  tip.replaceChildren(
    element("div", { class: "tip-head" }, `client ${number}${name}, ${kind}`),
    element("div", {}, `${picture.rows[client]} rows`),
  );
  if (label >= 0 && label < place.labels)
    tip.append(element("div", {}, `${picture.counts[label][client]} of label ${label}`));
  const across = event.clientX - bounds.left;
  tip.style.left = `${Math.max(0, across + 14 > host.clientWidth - tip.offsetWidth ? across - tip.offsetWidth - 14 : across + 14)}px`;
  tip.style.top = `${event.clientY - bounds.top + 14}px`;
}
