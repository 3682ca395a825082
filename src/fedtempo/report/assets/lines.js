// A line chart: bands, marks, end labels, a crosshair with a tooltip, zoom by dragging, keys for all of it.

// Bands of more contestants than these lie over each other as mud.
const BANDS = 3;
const HEIGHTS = { tall: 380, medium: 300, small: 200 };

// spec: { series, x, y, height, shade, whatItShows }; a series is { name, index, points, band, thin, marks, dashes }.
function lineChart(host, spec) {
  // A point without a height breaks the line; everything but the line knows the other points only.
  const series = spec.series
    .map((one) => ({ ...one, line: one.points, points: one.points.filter(([, y]) => y != null) }))
    .filter((one) => one.points.length);
  host.replaceChildren();
  if (!series.length) {
    host.append(element("p", { class: "empty" }, spec.empty || "Nothing to draw yet."));
    return;
  }
  const width = Math.max(280, Math.round(host.clientWidth || 640));
  const height = width < 480 ? Math.min(260, HEIGHTS[spec.height || "medium"]) : HEIGHTS[spec.height || "medium"];
  const named = series.filter((one) => !one.thin).length;
  const labelled = spec.endLabels !== false && width >= 520 && named > 1 && named <= 10;
  const longest = Math.max(...series.map((one) => short(one.name, 22).length));
  const box = { left: 46, right: labelled ? 36 + longest * 6.8 : 14, top: 26, bottom: 40 };
  const frame = new Frame(host, spec, series, width, height, box);
  frame.draw(labelled);
}

class Frame {
  constructor(host, spec, series, width, height, box) {
    Object.assign(this, { host, spec, series, width, height, box });
    this.inner = [box.left, width - box.right];
    const xs = series.flatMap((one) => [one.points[0][0], one.points.at(-1)[0]]);
    this.full = spec.x.domain || [spec.x.zero ? Math.min(0, ...xs) : Math.min(...xs), Math.max(...xs)];
    if (this.full[0] === this.full[1]) this.full = [this.full[0] - 0.5, this.full[1] + 0.5];
    const zoom = host.zoom;
    const inside = zoom && zoom[1] > this.full[0] && zoom[0] < this.full[1];
    this.domain = inside ? zoom : this.full;
    this.x = scale(this.domain, this.inner);
    this.y = scale(this.heights(), [height - box.bottom, box.top]);
  }

  // The y axis fits what is in sight.
  heights() {
    const [low, high] = this.domain;
    const values = [];
    for (const one of this.series) {
      for (const [x, y] of one.points) if (x >= low && x <= high) values.push(y);
      // The axis fits what the seeds were; with two of them an interval is far wider.
      for (const [x, bottom, top] of one.fit || one.band || []) if (x >= low && x <= high) values.push(bottom, top);
    }
    return padded(values, this.spec.y);
  }

  draw(labelled) {
    const { width, height } = this;
    const key = `clip-${(Frame.count = (Frame.count || 0) + 1)}`;
    const text = describe(this.spec, this.series);
    this.svg = shape("svg", {
      viewBox: `0 0 ${width} ${height}`,
      class: "chart",
      role: "img",
      tabindex: 0,
      "aria-label": text,
    });
    const over = this.domain === this.full ? 6 : 0; // marks at the ends may stand out, lines that go on may not
    const clip = {
      x: this.inner[0] - over,
      y: this.box.top - 8,
      width: this.inner[1] - this.inner[0] + 2 * over,
      height: height - this.box.bottom - this.box.top + 14,
    };
    this.svg.append(shape("clipPath", { id: key }, shape("rect", clip)));
    this.axes();
    const body = shape("g", { "clip-path": `url(#${key})` });
    this.shade(body);
    this.lines(body);
    this.svg.append(body);
    if (labelled) this.endLabels();
    this.cross = shape("g", { class: "cross" });
    this.svg.append(this.cross);
    this.host.append(this.svg);
    this.tip = element("div", { class: "tip", hidden: true });
    this.host.append(this.tip);
    this.listen();
  }

  axes() {
    const { svg, x, y, box, width, height, spec } = this;
    const bottom = height - box.bottom;
    for (const value of ticks(...this.extent(y, box.top, bottom), height > 240 ? 5 : 4)) {
      const place = y(value);
      svg.append(shape("line", { x1: box.left, x2: width - box.right, y1: place, y2: place, class: "grid" }));
      svg.append(words((spec.y.format || show.tick)(value), box.left - 8, place + 4, "tick", { "text-anchor": "end" }));
    }
    const count = Math.max(2, Math.floor((this.inner[1] - this.inner[0]) / 85));
    for (const value of ticks(...this.domain, count, spec.x.whole)) {
      svg.append(shape("line", { x1: x(value), x2: x(value), y1: bottom, y2: bottom + 4, class: "axis" }));
      svg.append(
        words((spec.x.format || show.tick)(value), x(value), bottom + 18, "tick", { "text-anchor": "middle" }),
      );
    }
    svg.append(shape("line", { x1: box.left, x2: width - box.right, y1: bottom, y2: bottom, class: "axis" }));
    svg.append(words(spec.y.name, 0, 12, "name"));
    svg.append(words(spec.x.name, width - box.right, height - 4, "name", { "text-anchor": "end" }));
  }

  extent(y, top, bottom) {
    return [y.invert(bottom), y.invert(top)];
  }

  shade(body) {
    const { shade } = this.spec;
    if (!shade) return;
    const [from, to] = [this.x(shade.from), this.x(shade.to)];
    const high = this.box.top,
      low = this.height - this.box.bottom;
    body.append(shape("rect", { x: from, y: high, width: Math.max(0, to - from), height: low - high, class: "shade" }));
    body.append(shape("line", { x1: to, x2: to, y1: high, y2: low, class: "shade-edge" }));
    body.append(words(shade.name, to + 6, low - 8, "note"));
  }

  lines(body) {
    const { x, y } = this;
    const wide = this.inner[1] - this.inner[0];
    const banded = this.series.filter((one) => one.band && one.band.length > 1);
    for (const one of banded.length > BANDS ? [] : banded) {
      const up = one.band.map(([a, , high]) => [a, high]),
        down = one.band.map(([a, low]) => [a, low]).reverse();
      body.append(
        shape("path", { d: `${path(up, x, y)}L${path(down, x, y).slice(1)}Z`, fill: colour(one.index), class: "band" }),
      );
    }
    for (const one of this.series) {
      const line = perPixel(one.line, x, wide);
      const points = line.filter(([, y]) => y != null);
      const look = {
        stroke: colour(one.index),
        "stroke-dasharray": one.dashes ?? dash(one.index),
        class: one.thin ? "line thin" : "line",
      };
      if (points.length > 1) body.append(shape("path", { d: path(line, x, y), ...look }));
      if (one.marks === false || one.thin || (points.length > 45 && one.marks !== true)) continue;
      for (const point of points) body.append(mark(one.index, x(point[0]), y(point[1]), points.length > 20 ? 3 : 4));
    }
  }

  // Names at the ends of the lines, moved apart where they would overlap.
  endLabels() {
    const named = this.series
      .filter((one) => !one.thin)
      .map((one) => {
        const last = one.points.filter(([x]) => x <= this.domain[1]).at(-1) || one.points.at(-1);
        return { one, wanted: this.y(last[1]), from: Math.min(this.x(last[0]), this.inner[1]) };
      });
    named.sort((a, b) => a.wanted - b.wanted);
    const gap = 15,
      low = this.height - this.box.bottom;
    let floor = this.box.top - 8;
    for (const entry of named) {
      entry.place = Math.max(entry.wanted, floor + gap);
      floor = entry.place;
    }
    let ceiling = low + 6;
    for (const entry of [...named].reverse()) {
      entry.place = Math.min(entry.place, ceiling);
      ceiling = entry.place - gap;
    }
    for (const { one, wanted, place, from } of named) {
      const start = this.inner[1] + 8;
      if (Math.abs(wanted - place) > 3 || from < this.inner[1] - 4)
        this.svg.append(
          shape("path", {
            d: `M${from + 6},${wanted}L${start + 6},${place}`,
            class: "leader",
            stroke: colour(one.index),
          }),
        );
      this.svg.append(
        mark(one.index, start + 11, place, 3.5),
        words(short(one.name, 22), start + 20, place + 4, "end"),
      );
    }
  }

  listen() {
    const { svg } = this;
    const at = (event) => {
      const bounds = svg.getBoundingClientRect();
      return ((event.clientX - bounds.left) / bounds.width) * this.width;
    };
    let from = null;
    svg.addEventListener("pointerdown", (event) => {
      if (event.button === 0) {
        from = at(event);
        svg.setPointerCapture(event.pointerId);
      }
    });
    svg.addEventListener("pointermove", (event) =>
      from != null && Math.abs(at(event) - from) > 6 ? this.select(from, at(event)) : this.point(at(event)),
    );
    svg.addEventListener("pointerup", (event) => {
      const to = at(event);
      if (from != null && Math.abs(to - from) > 12)
        this.zoom([this.x.invert(Math.min(from, to)), this.x.invert(Math.max(from, to))]);
      from = null;
    });
    svg.addEventListener("pointerleave", () => {
      from = null;
      this.leave();
    });
    svg.addEventListener("blur", () => this.leave());
    svg.addEventListener("dblclick", () => this.zoom(null));
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  select(from, to) {
    const place = {
      x: Math.min(from, to),
      width: Math.abs(to - from),
      y: this.box.top,
      height: this.height - this.box.bottom - this.box.top,
    };
    this.cross.replaceChildren(shape("rect", { ...place, class: "selection" }));
    this.tip.hidden = true;
  }

  zoom(domain) {
    this.host.zoom = domain && [Math.max(domain[0], this.full[0]), Math.min(domain[1], this.full[1])];
    this.host.dispatchEvent(new CustomEvent("zoomed", { bubbles: true }));
    lineChart(this.host, this.spec);
    this.host.querySelector("svg").focus({ preventScroll: true });
  }

  places() {
    const seen = new Set(this.series.flatMap((one) => one.points.map(([x]) => x)));
    return [...seen].filter((x) => x >= this.domain[0] && x <= this.domain[1]).sort((a, b) => a - b);
  }

  key(event) {
    const [low, high] = this.domain,
      middle = this.here ?? (low + high) / 2;
    if (event.key === "Escape") this.zoom(null);
    else if (event.key === "+") this.zoom([middle - (high - low) / 4, middle + (high - low) / 4]);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const places = this.places();
      const now = this.here == null ? -1 : places.findIndex((x) => x >= this.here);
      const next = places[Math.min(places.length - 1, Math.max(0, now + (event.key === "ArrowRight" ? 1 : -1)))];
      this.point(this.x(next));
      event.preventDefault();
    }
  }

  leave() {
    this.cross.replaceChildren();
    this.tip.hidden = true;
    this.here = null;
  }

  point(place) {
    if (place < this.inner[0] - 10 || place > this.inner[1] + 10) return this.leave();
    const wanted = this.x.invert(place);
    const tolerance = (this.domain[1] - this.domain[0]) / 12;
    const candidates = this.series.map((one) => ({ one, point: nearest(one.points, wanted) }));
    const closest = candidates.reduce((a, b) =>
      Math.abs(a.point[0] - wanted) <= Math.abs(b.point[0] - wanted) ? a : b,
    );
    this.here = closest.point[0];
    const rows = candidates
      .map(({ one }) => ({ one, point: nearest(one.points, this.here) }))
      .filter(({ point }) => Math.abs(point[0] - this.here) <= tolerance)
      .sort((a, b) => b.point[1] - a.point[1]);
    const x = this.x(this.here);
    this.cross.replaceChildren(
      shape("line", { x1: x, x2: x, y1: this.box.top, y2: this.height - this.box.bottom, class: "hair" }),
    );
    for (const { one, point } of rows) this.cross.append(mark(one.index, this.x(point[0]), this.y(point[1]), 5));
    this.explain(rows, x);
    return undefined;
  }

  explain(rows, x) {
    const { spec, tip } = this;
    const head = spec.x.tip ? spec.x.tip(this.here) : `${spec.x.name} ${(spec.x.format || show.tick)(this.here)}`;
    tip.replaceChildren(element("div", { class: "tip-head" }, head));
    for (const { one, point } of rows.slice(0, 14)) {
      const value = (spec.y.value || show.value)(point[1]);
      const range =
        point[3] > point[2]
          ? ` (${(spec.y.value || show.value)(point[2])} to ${(spec.y.value || show.value)(point[3])})`
          : "";
      tip.append(
        element(
          "div",
          { class: "tip-row" },
          swatch(one.index),
          element("span", {}, one.name),
          element("b", {}, value + range),
        ),
      );
    }
    if (rows.length > 14) tip.append(element("div", { class: "tip-row" }, `and ${rows.length - 14} more`));
    tip.hidden = false;
    const ratio = this.svg.getBoundingClientRect().width / this.width;
    const left = x * ratio + 14,
      room = this.host.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, left > room ? x * ratio - tip.offsetWidth - 14 : left)}px`;
    tip.style.top = "30px";
  }
}
