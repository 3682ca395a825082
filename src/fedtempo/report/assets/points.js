// Points of a line: thinned to the pixels there are, found, joined, told in words.

// Where there are more points than pixels, each pixel keeps its lowest and highest point.
function perPixel(points, x, width) {
  if (points.length <= 2 * width) return points;
  const kept = [];
  let column = null,
    low = null,
    high = null;
  const flush = () => {
    if (low == null) return;
    kept.push(...(low === high ? [low] : low[0] <= high[0] ? [low, high] : [high, low]));
  };
  for (const point of points) {
    if (point[1] == null) {
      flush();
      low = high = column = null;
      kept.push(point);
      continue;
    }
    const here = Math.round(x(point[0]));
    if (here !== column) {
      flush();
      column = here;
      low = high = point;
    }
    if (point[1] < low[1]) low = point;
    if (point[1] > high[1]) high = point;
  }
  flush();
  return kept;
}

function nearest(points, value) {
  let from = 0,
    to = points.length - 1;
  while (to - from > 1) {
    const middle = (from + to) >> 1;
    if (points[middle][0] < value) from = middle;
    else to = middle;
  }
  return points[to] && Math.abs(points[to][0] - value) < Math.abs(points[from][0] - value) ? points[to] : points[from];
}

// A point without a height ends a piece of the line.
const path = (points, x, y) =>
  points
    .map((p, i) =>
      p[1] == null ? "" : `${i && points[i - 1][1] != null ? "L" : "M"}${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`,
    )
    .join("");

// What somebody who does not see the figure is told.
function describe(spec, series) {
  const format = spec.y.value || show.value,
    across = spec.x.format || show.tick;
  const parts = series.slice(0, 12).map((one) => {
    const first = one.points[0],
      last = one.points.at(-1);
    return `${one.name}: from ${format(first[1])} at ${across(first[0])} to ${format(last[1])} at ${across(last[0])}`;
  });
  const more = series.length > 12 ? ` and ${series.length - 12} more` : "";
  return `${spec.whatItShows}: ${spec.y.name} against ${spec.x.name}. ${parts.join("; ")}${more}.`;
}
