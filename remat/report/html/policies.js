// Policies and plans: a table, and a plot of bytes against predicted time.

const policyRows = data.comparison;
const plans = data.plans || [];
const leastSeconds = Math.min(...[...policyRows, ...plans].map((r) => r.seconds).filter((s) => s));
const bytesOf = (row) => (row.live_bytes === null || row.live_bytes === undefined ? row.peak_bytes : row.live_bytes);
const sizeText = (count) => (count === null ? "–" : bytesText(count));

const POLICY_COLUMNS = [
  { title: "policy", of: policyName },
  { title: "kept", of: (r) => [sizeText(r.kept_bytes)], number: true },
  { title: "in host memory", of: (r) => [sizeText(r.host_bytes)], number: true, only: (r) => r.host_bytes },
  { title: "recomputed", of: (r) => [flopsText(r.recomputed_flops)], number: true },
  { title: "predicted time", of: (r) => [timesText(r.seconds)], number: true, only: (r) => r.seconds },
  { title: "measured step", of: (r) => [r.step_seconds ? `${(1e3 * r.step_seconds).toFixed(1)} ms` : "–"], number: true, only: (r) => r.step_seconds },
  { title: "simulated peak", of: (r) => [sizeText(r.peak_bytes)], number: true },
  { title: "measured", of: (r) => [sizeText(r.live_bytes)], number: true, only: (r) => r.live_bytes },
  { title: "with arguments", of: (r) => [sizeText(r.total_bytes)], number: true },
].filter((column) => !column.only || policyRows.some(column.only));

function flopsText(count) {
  if (count === null) return "–";
  let size = count;
  for (const unit of ["", "K", "M", "G", "T", "P"]) {
    if (Math.abs(size) < 1000 || unit === "P") return `${unit ? size.toFixed(1) : size} ${unit}FLOP`;
    size /= 1000;
  }
}

function timesText(seconds) {
  return seconds && Number.isFinite(leastSeconds) ? `× ${(seconds / leastSeconds).toFixed(2)}` : "–";
}

function policyName(row) {
  const isThis = row === policyRows[0] ? element("span", { class: "tag this-tag" }, "this report") : null;
  const front = row.front ? element("span", { class: "tag front-tag" }, "front") : null;
  const failed = row.error !== null ? element("span", { class: "tag error-tag" }, row.peak_bytes === null ? "failed" : "not measured") : null;
  const warned = row.warnings.length ? element("a", { class: "tag warning-tag", href: "#findings" }, counted(row.warnings.length, "warning")) : null;
  return [element("code", {}, row.policy), ...[isThis, front, failed, warned].filter(Boolean).flatMap((tag) => [" ", tag])];
}

function policyTable() {
  const head = POLICY_COLUMNS.map((c) => element("th", { scope: "col", class: c.number ? "number" : null }, c.title));
  const body = policyRows.map((row) => element("tr", { class: row === policyRows[0] ? "this" : null }, ...POLICY_COLUMNS.map((c) => tableCell(c, ...c.of(row)))));
  return tableBox({ class: "cards", id: "policy-table" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
}

// The points of the plot: {bytes, time (the least is 1), label, kind, front, about}.
function pointsOf() {
  const point = (row, label, kind) => {
    const time = row.seconds / leastSeconds;
    const about = `${kind} ${label}: ${bytesText(bytesOf(row))}, predicted time × ${time.toFixed(2)}, keeps ${sizeText(row.kept_bytes)}`;
    return { bytes: bytesOf(row), time, label, kind, front: row.front, about };
  };
  const usable = (row) => row.seconds && bytesOf(row) !== null;
  return [
    ...plans.filter(usable).map((row) => point(row, row.structure, "plan")),
    ...policyRows.filter(usable).map((row) => point(row, row.policy, "policy")),
  ];
}

function drawPlot(box, caption, points) {
  const width = box.clientWidth;
  const height = width < 560 ? 280 : 340;
  const frame = { left: 58, right: width - 24, top: 16, bottom: height - 44 };
  const sizes = points.map((p) => p.bytes).concat(data.budget_bytes || []);
  const xTicks = byteTicks(0.96 * Math.min(...sizes), 1.02 * Math.max(...sizes), width < 560 ? 3 : 8);
  const [lowest, largest] = [xTicks[0], xTicks[xTicks.length - 1]];
  const most = Math.max(...points.map((p) => p.time));
  const gap = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 50, 100].find((g) => (most - 1) / g <= 5) || most;
  const highest = 1 + gap * Math.max(1, Math.ceil((most - 1) / gap + 0.2));
  const x = (bytes) => frame.left + ((frame.right - frame.left) * (bytes - lowest)) / (largest - lowest);
  const y = (time) => frame.bottom - 8 - ((frame.bottom - frame.top - 8) * (time - 1)) / (highest - 1);
  const yTicks = Array.from({ length: Math.round((highest - 1) / gap) + 1 }, (_, i) => 1 + i * gap);
  const picture = drawn(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Bytes against predicted time" },
    ...yTicks.map((t) => drawn("g", { class: "axis" }, drawn("line", { x1: frame.left, x2: frame.right, y1: y(t), y2: y(t) }), drawn("text", { x: frame.left - 8, y: y(t) + 4, "text-anchor": "end" }, `× ${t.toFixed(gap < 0.1 ? 2 : 1)}`))),
    ...xTicks.map((t) => drawn("text", { class: "step-number", x: x(t), y: frame.bottom + 18, "text-anchor": t === largest ? "end" : "middle" }, tickText(t))),
    drawn("text", { class: "axis-title", x: (frame.left + frame.right) / 2, y: height - 6, "text-anchor": "middle" }, data.measured ? "results and temporaries, policies measured, plans simulated" : "simulated peak besides arguments"),
    data.budget_bytes ? budgetLine(x(data.budget_bytes), frame) : null,
    ...["plan", "policy"].map((kind) => frontLine(points.filter((p) => p.kind === kind && p.front), kind, x, y)),
    ...points.map((p) => pointMark(p, x, y, caption)),
    ...labels(points.filter((p) => p.kind === "policy"), points, x, y, frame),
  );
  box.replaceChildren(picture);
}

function budgetLine(x, frame) {
  return drawn("g", { class: "limit" }, drawn("line", { x1: x, x2: x, y1: frame.top, y2: frame.bottom }), drawn("text", { x: x + 5, y: frame.top + 10 }, "budget"));
}

function frontLine(points, kind, x, y) {
  const ordered = [...points].sort((a, b) => a.bytes - b.bytes);
  const corners = ordered.flatMap((p, i) => (i ? [`${x(p.bytes)},${y(ordered[i - 1].time)}`, `${x(p.bytes)},${y(p.time)}`] : [`${x(p.bytes)},${y(p.time)}`]));
  return drawn("polyline", { class: `front ${kind}`, points: corners.join(" ") });
}

function pointMark(p, x, y, caption) {
  const say = () => { caption.textContent = p.about; };
  const isFirst = p.kind === "policy" && p.label === data.policy;
  return drawn(
    "circle",
    { class: `point ${p.kind}${p.front ? " on-front" : ""}${isFirst ? " this" : ""}`, cx: x(p.bytes), cy: y(p.time), r: p.kind === "policy" ? 6 : 3.5,
      tabindex: p.kind === "policy" ? 0 : null, role: "img", "aria-label": p.about, onfocus: say, onpointerenter: say },
    drawn("title", {}, p.about),
  );
}

// Names beside points, where there is room: a name covers no other one and no point.
function labels(policies, points, x, y, frame) {
  const taken = points.map((p) => ({ left: x(p.bytes) - 5, right: x(p.bytes) + 5, top: y(p.time) - 5, bottom: y(p.time) + 5 }));
  return policies.map((p) => {
    const name = p.label.length > 24 ? `${p.label.slice(0, 23)}…` : p.label;
    const [w, h, px, py] = [name.length * 6.8, 14, x(p.bytes), y(p.time)];
    const places = [[px + 10, py - 7], [px - 10 - w, py - 7], [px - w / 2, py - 24], [px - w / 2, py + 10], [px + 8, py - 24], [px - 8 - w, py - 24], [px + 8, py + 8], [px + 14, py - 40], [px - 14 - w, py - 40], [px + 14, py + 24], [px - 14 - w, py + 24]];
    const boxes = places.map(([left, top]) => ({ left, right: left + w, top, bottom: top + h }));
    const free = boxes.find((b) => b.left >= frame.left && b.right <= frame.right + 16 && b.top >= 0 && b.bottom <= frame.bottom && !taken.some((t) => t.left < b.right && b.left < t.right && t.top < b.bottom && b.top < t.bottom));
    if (!free) return null;
    taken.push(free);
    return drawn("text", { class: "point-name", x: free.left, y: free.top + 11 }, name);
  });
}

function buildPolicies() {
  const time = Number.isFinite(leastSeconds) ? "Predicted time is by the target's peak rates, as a multiple of the least. " : "Times are not known: an operation's cost is not. ";
  const how = data.measured ? "Bytes called measured are of compiled programs; peaks are simulated." : "Bytes are predicted, peaks simulated; nothing was measured.";
  document.getElementById("policies-lead").textContent = `${time}${how} Recomputed are operations in products and convolutions. On the front is what no other policy beats in both.`;
  const points = pointsOf();
  const caption = element("p", { class: "caption", "aria-live": "polite" }, plans.length ? "Large points are policies, small ones plans that remat.plan chooses from." : data.no_plans);
  const box = element("div", { class: "chart plot" });
  document.getElementById("policies-body").replaceChildren(policyTable(), ...(points.length ? [box, caption] : [caption]));
  if (points.length) redrawnToFit(box, () => drawPlot(box, caption, points));
}

buildPolicies();
