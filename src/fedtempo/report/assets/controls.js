// What the reader may choose: metric, statistic, users, before or after, seeds, and which runs are in sight.

function segmented({ key, name, options }) {
  const buttons = Object.entries(options).map(([value, text]) =>
    element(
      "button",
      { type: "button", "data-state": key, "data-value": value, onclick: () => change(key, value) },
      text,
    ),
  );
  return element("div", { class: "segmented", role: "group", "aria-label": name }, ...buttons);
}

function chooser(key, name, options) {
  const select = element(
    "select",
    { id: `choose-${key}`, onchange: (event) => change(key, event.target.value) },
    ...Object.entries(options).map(([value, text]) =>
      element("option", { value, selected: state[key] === value }, text),
    ),
  );
  return element("label", { class: "chooser" }, element("span", {}, name), select);
}

function controls() {
  const { data } = numbers;
  const chips =
    numbers.labels.length < 2
      ? []
      : numbers.labels.map((label, index) =>
          element(
            "button",
            {
              type: "button",
              class: "chip",
              "data-label": label,
              title: "Hide or show; double-click to see it alone",
              onclick: () => toggle(label),
              ondblclick: () => alone(label),
            },
            swatch(index),
            element("span", {}, label),
          ),
        );
  const choices = [
    chooser("metric", "metric", Object.fromEntries(data.metrics.map((metric) => [metric, plain(metric)]))),
    chooser("statistic", "over users", STATISTICS),
    numbers.hasNew
      ? segmented({ key: "users", name: "users", options: { existing: "existing users", new: "new users" } })
      : null,
    segmented({ key: "when", name: "fine-tuning", options: { before: "before", after: "after fine-tuning" } }),
    numbers.several
      ? segmented({ key: "seeds", name: "seeds", options: { band: "mean and interval", each: "every seed" } })
      : null,
  ];
  document
    .getElementById("controls")
    .replaceChildren(
      element("div", { class: "chips", role: "group", "aria-label": "runs" }, ...chips),
      element("div", { class: "choices" }, ...choices),
    );
}

function toggle(label) {
  if (!state.hidden.delete(label)) state.hidden.add(label);
  update();
}

function alone(label) {
  state.hidden = new Set(numbers.labels.filter((other) => other !== label));
  update();
}
