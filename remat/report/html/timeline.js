// The chart of live bytes, and what is alive at the step that is chosen.

const timeline = data.timeline;
const samples = timeline.samples;
const ALIVE_ROWS = 12;
const ALIVE_COLUMNS = [
  { title: "bytes", number: true },
  { title: "share", number: true },
  { title: "what" },
  { title: "type" },
  { title: "made" },
  { title: "alive", number: true },
  { title: "line" },
];

const chart = { box: document.getElementById("timeline-chart"), chosen: peakSample(), allRows: false };

function peakSample() {
  return Math.max(0, samples.findIndex((s) => s.step === timeline.peak_step));
}

function drawTimeline() {
  const width = chart.box.clientWidth;
  const height = width < 560 ? 220 : 280;
  const frame = { left: 66, right: width - 14, top: 34, bottom: height - 30 };
  const limit = data.budget_bytes && data.budget_bytes < 2 * timeline.peak_bytes ? data.budget_bytes : null;
  const ticks = byteTicks(0, Math.max(timeline.peak_bytes, limit || 0, 1), 4);
  const highest = ticks[ticks.length - 1];
  chart.x = (step) => frame.left + ((frame.right - frame.left) * step) / Math.max(1, timeline.steps);
  chart.y = (bytes) => frame.bottom - ((frame.bottom - frame.top) * bytes) / highest;
  chart.frame = frame;
  chart.cursor = drawn("g", { class: "cursor" });
  const picture = drawn(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    ...ticks.map((tick) => axisLine(tick, frame)),
    area("forward", samples.filter((s) => s.last < timeline.forward_steps)),
    area("backward", samples.filter((s) => s.last >= timeline.forward_steps)),
    ...passes(frame),
    ...stepNumbers(frame),
    limit === null ? null : limitLine(limit, frame),
    chart.cursor,
    peakMark(frame),
  );
  chart.box.replaceChildren(picture);
  drawCursor();
}

function axisLine(tick, frame) {
  const y = chart.y(tick);
  return drawn(
    "g",
    { class: "axis" },
    drawn("line", { x1: frame.left, x2: frame.right, y1: y, y2: y }),
    drawn("text", { x: frame.left - 8, y: y + 4, "text-anchor": "end" }, tickText(tick)),
  );
}

function area(kind, part) {
  if (!part.length) return null;
  const points = part.flatMap((s) => [`${chart.x(s.first)},${chart.y(s.bytes)}`, `${chart.x(s.last + 1)},${chart.y(s.bytes)}`]);
  const begin = `${chart.x(part[0].first)},${chart.y(0)}`;
  const end = `${chart.x(part[part.length - 1].last + 1)},${chart.y(0)}`;
  return drawn("g", { class: kind }, drawn("polygon", { points: [begin, ...points, end].join(" ") }), drawn("polyline", { points: points.join(" ") }));
}

function passes(frame) {
  const border = chart.x(timeline.forward_steps);
  const name = (text, from, to, kind) =>
    to - from < 60 ? null : drawn("text", { class: `pass ${kind}`, x: (from + to) / 2, y: 14, "text-anchor": "middle" }, text);
  return [
    drawn("line", { class: "border", x1: border, x2: border, y1: 4, y2: frame.bottom }),
    name(border - frame.left < 100 ? "forward" : "forward pass", frame.left, border, "forward-name"),
    name(frame.right - border < 100 ? "backward" : "backward pass", border, frame.right, "backward-name"),
  ];
}

function stepNumbers(frame) {
  const y = frame.bottom + 18;
  const middle = timeline.forward_steps;
  const between = chart.x(middle) - frame.left > 90 && frame.right - chart.x(middle) > 60;
  return [
    drawn("text", { class: "step-number", x: frame.left, y }, "step 0"),
    between ? drawn("text", { class: "step-number", x: chart.x(middle), y, "text-anchor": "middle" }, middle.toLocaleString("en")) : null,
    drawn("text", { class: "step-number", x: frame.right, y, "text-anchor": "end" }, timeline.steps.toLocaleString("en")),
  ];
}

function limitLine(limit, frame) {
  const y = chart.y(limit);
  return drawn(
    "g",
    { class: "limit" },
    drawn("line", { x1: frame.left, x2: frame.right, y1: y, y2: y }),
    drawn("text", { x: frame.left + 6, y: y - 5 }, `budget ${bytesText(limit)}`),
  );
}

function center(sample) {
  return chart.x((sample.first + sample.last + 1) / 2);
}

function peakMark(frame) {
  const sample = samples[peakSample()];
  if (!sample) return null;
  const x = center(sample);
  const y = chart.y(timeline.peak_bytes);
  const anchor = x > frame.right - 90 ? "end" : x < frame.left + 90 ? "start" : "middle";
  const label = drawn("text", { x, y: y - 8, "text-anchor": anchor }, `peak ${bytesText(timeline.peak_bytes)}`);
  return drawn("g", { class: "peak" }, drawn("circle", { cx: x, cy: y, r: 4 }), label);
}

function drawCursor() {
  const sample = samples[chart.chosen];
  if (!sample) return;
  const x = center(sample);
  chart.cursor.replaceChildren(
    drawn("line", { x1: x, x2: x, y1: chart.frame.top - 12, y2: chart.frame.bottom }),
    drawn("circle", { cx: x, cy: chart.y(sample.bytes), r: 4 }),
  );
  const about = `step ${sample.step} of ${timeline.steps}, ${textOf(sample.made)}, ${textOf(sample.operation)}, ${bytesText(sample.bytes)}`;
  const values = { "aria-valuemin": 0, "aria-valuemax": timeline.steps - 1, "aria-valuenow": sample.step, "aria-valuetext": about };
  for (const [key, value] of Object.entries(values)) chart.box.setAttribute(key, value);
}

function choose(index) {
  const wanted = Math.min(Math.max(index, 0), samples.length - 1);
  if (wanted === chart.chosen) return;
  chart.chosen = wanted;
  drawCursor();
  cancelAnimationFrame(chart.waiting);
  chart.waiting = requestAnimationFrame(drawStep);
}

function aliveAt(sample) {
  const found = timeline.arrays.filter((row) => row[1] <= sample.step && sample.step <= row[2]);
  return [...found, ...(sample.inside || [])].sort((a, b) => b[0] - a[0]);
}

// Rows that differ only in when they are alive, as one: [row, how many, first step, last step], by bytes in all.
function grouped(rows) {
  const groups = new Map();
  for (const row of rows) {
    const [bytes, since, until, ...rest] = row;
    const key = `${bytes} ${rest}`;
    const group = groups.get(key);
    if (group === undefined) groups.set(key, { row, count: 1, since, until });
    else Object.assign(group, { count: group.count + 1, since: Math.min(group.since, since), until: Math.max(group.until, until) });
  }
  return [...groups.values()].sort((a, b) => b.count * b.row[0] - a.count * a.row[0]);
}

function drawStep() {
  const sample = samples[chart.chosen];
  const box = document.getElementById("timeline-step");
  if (!sample) {
    box.replaceChildren(element("p", { class: "note" }, "The program has no steps."));
    return;
  }
  const alive = aliveAt(sample);
  const groups = grouped(alive);
  const shown = chart.allRows ? groups : groups.slice(0, ALIVE_ROWS);
  const [restCount, restBytes] = sample.inside_rest || [0, 0];
  const hidden = groups.slice(shown.length).reduce((sum, g) => sum + g.count, restCount);
  const hiddenBytes = groups.slice(shown.length).reduce((sum, g) => sum + g.count * g.row[0], restBytes);
  const toggle = element(
    "button",
    { type: "button", onclick: () => { chart.allRows = !chart.allRows; drawStep(); } },
    chart.allRows ? "Show the largest only" : "Show all",
  );
  const rest = hidden ? `${bytesText(hiddenBytes)} more in ${counted(hidden, "array")} ` : "";
  box.replaceChildren(
    stepHead(sample, alive.length + restCount),
    aliveTable(shown, sample),
    element("p", { class: "more" }, rest, groups.length > ALIVE_ROWS ? toggle : null),
  );
}

function stepHead(sample, count) {
  const others = sample.last > sample.first ? `, the most of steps ${sample.first.toLocaleString("en")} to ${sample.last.toLocaleString("en")}` : "";
  const isPeak = sample.step === timeline.peak_step ? element("span", { class: "tag peak-tag" }, "peak") : null;
  return element(
    "p",
    { class: "step-head" },
    element("strong", {}, `Step ${sample.step.toLocaleString("en")}`),
    ` of ${timeline.steps.toLocaleString("en")}${others} `,
    element("span", { class: `tag ${textOf(sample.made)}-tag` }, textOf(sample.made)),
    " ",
    isPeak,
    " ",
    element("code", {}, textOf(sample.operation)),
    ` ${textOf(sample.place)} `,
    element("span", { class: "step-bytes" }, `${bytesText(sample.bytes)} alive in ${counted(count, "array")}`),
  );
}

function aliveTable(groups, sample) {
  const head = ALIVE_COLUMNS.map((c) => element("th", { scope: "col", class: c.number ? "number" : null }, c.title));
  const body = groups.map(({ row, count, since, until }) => {
    const [size, , , times, what, type, made, operation, place] = row;
    const bytes = count * size;
    const several = count > 1 ? element("strong", {}, ` × ${count.toLocaleString("en")}`) : null;
    const by = textOf(what).startsWith("'") ? ` by ${textOf(operation)}` : "";
    const cells = [
      [bytesText(bytes)],
      [bar(bytes, sample.bytes, textOf(made)), percentOf(bytes, sample.bytes)],
      [element("code", {}, textOf(what)), times > 1 ? ` × ${times} in loops` : by, several],
      [typeCode(textOf(type))],
      [element("span", { class: `tag ${textOf(made)}-tag` }, textOf(made))],
      [`${since}–${until}`],
      [placeText(textOf(place))],
    ];
    return element("tr", {}, ...cells.map((cell, i) => tableCell(ALIVE_COLUMNS[i], ...cell)));
  });
  return tableBox({ class: "cards alive" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

function chooseAt(event) {
  const { left, right } = chart.frame;
  const x = event.clientX - chart.box.getBoundingClientRect().left;
  const step = ((x - left) / (right - left)) * timeline.steps;
  let low = 0;
  let high = samples.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (samples[middle].last + 1 <= step) low = middle + 1;
    else high = middle;
  }
  choose(low);
}

function chooseByKey(event) {
  const page = Math.max(2, Math.round(samples.length / 10));
  const moves = {
    ArrowLeft: chart.chosen - 1,
    ArrowDown: chart.chosen - 1,
    ArrowRight: chart.chosen + 1,
    ArrowUp: chart.chosen + 1,
    PageDown: chart.chosen - page,
    PageUp: chart.chosen + page,
    Home: 0,
    End: samples.length - 1,
    p: peakSample(),
    P: peakSample(),
  };
  if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  choose(moves[event.key]);
}

redrawnToFit(chart.box, drawTimeline);
chart.box.addEventListener("pointermove", chooseAt);
chart.box.addEventListener("pointerdown", chooseAt);
chart.box.addEventListener("keydown", chooseByKey);
drawStep();
