// The table of kept values: sorted by any column, filtered by any text, in groups.

const KEPT_ROWS = 100;
const KEPT_COLUMNS = [
  { title: "value", of: (r) => r.key },
  { title: "type", of: (r) => r.type },
  { title: "× N", of: (r) => r.times, number: true },
  { title: "bytes", of: (r) => r.total_bytes, number: true },
  { title: "share", of: (r) => (r.is_new ? r.total_bytes : -1), number: true },
  { title: "why it is kept", of: (r) => r.reason },
  { title: "line", of: (r) => r.place },
];
const GROUPS = {
  none: null,
  scope: (r) => r.group,
  reason: (r) => r.reason,
  type: (r) => r.type,
  line: (r) => r.place || "(no line)",
};

const TEXT_COLUMNS = new Set(["type", "memory", "scope", "reason", "needed_by", "place", "group"]);
const residuals = data.residuals.rows.map((row) =>
  Object.fromEntries(data.residuals.columns.map((name, i) => [name, TEXT_COLUMNS.has(name) ? textOf(row[i]) : row[i]])),
);
const kept = { column: 3, descending: true, filter: "", group: "none", held: false, all: false };
const keptParts = {};

function buildKept() {
  const options = Object.keys(GROUPS).map((name) => element("option", { value: name }, name));
  const filter = element("input", { type: "search", id: "kept-filter", placeholder: "key, type, scope, reason, line",
    oninput: (event) => { kept.filter = event.target.value.toLowerCase(); drawKept(); } });
  const group = element("select", { id: "kept-group", onchange: (event) => { kept.group = event.target.value; drawKept(); } }, ...options);
  const held = element("input", { type: "checkbox", id: "kept-held", onchange: (event) => { kept.held = event.target.checked; drawKept(); } });
  const heldBytes = data.totals.held_bytes;
  const controls = element(
    "div",
    { class: "controls" },
    element("label", {}, "Filter ", filter),
    element("label", {}, "Group by ", group),
    heldBytes ? element("label", {}, held, ` Show what the caller holds anyway (${bytesText(heldBytes)})`) : null,
  );
  keptParts.head = element("tr", {}, ...KEPT_COLUMNS.map(sortableHead));
  keptParts.body = element("tbody");
  keptParts.foot = element("tfoot");
  keptParts.more = element("p", { class: "more", "aria-live": "polite" });
  const table = tableBox({ class: "cards", id: "kept-table" }, element("thead", {}, keptParts.head), keptParts.body, keptParts.foot);
  document.getElementById("kept-body").replaceChildren(controls, table, keptParts.more);
  drawKept();
}

function sortableHead(column, index) {
  const press = () => {
    kept.descending = kept.column === index ? !kept.descending : Boolean(column.number);
    kept.column = index;
    drawKept();
  };
  return element("th", { scope: "col", class: column.number ? "number" : null }, element("button", { type: "button", onclick: press }, column.title));
}

function matches(r) {
  if (!r.is_new && !kept.held) return false;
  const text = [r.key, r.value, r.type, r.scope, r.reason, r.place, r.needed_by].join("\n").toLowerCase();
  return kept.filter.split(/\s+/).every((word) => text.includes(word));
}

function inOrder(rows) {
  const of = KEPT_COLUMNS[kept.column].of;
  const sign = kept.descending ? -1 : 1;
  const compared = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  return [...rows].sort((a, b) => sign * compared(of(a), of(b)));
}

function sumOf(rows) {
  return rows.reduce((sum, r) => sum + (r.is_new ? r.total_bytes : 0), 0);
}

function drawKept() {
  [...keptParts.head.children].forEach((head, i) => {
    head.setAttribute("aria-sort", i !== kept.column ? "none" : kept.descending ? "descending" : "ascending");
  });
  const rows = inOrder(residuals.filter(matches));
  const shown = kept.all ? rows : rows.slice(0, KEPT_ROWS);
  keptParts.body.replaceChildren(...(GROUPS[kept.group] ? groupedRows(rows, shown) : shown.map(keptRow)));
  keptParts.foot.replaceChildren(totalRow(rows));
  const toggle = element("button", { type: "button", onclick: () => { kept.all = !kept.all; drawKept(); } }, kept.all ? "Show fewer" : "Show all");
  const count = rows.length > shown.length ? `${shown.length} of ${counted(rows.length, "row")} ` : `${counted(rows.length, "row")} `;
  keptParts.more.replaceChildren(count, rows.length > KEPT_ROWS ? toggle : "");
}

function groupedRows(rows, shown) {
  const of = GROUPS[kept.group];
  const all = groupedBy(rows, of);
  const visible = groupedBy(shown, of);
  const ordered = [...visible.keys()].sort((a, b) => sumOf(all.get(b)) - sumOf(all.get(a)));
  return ordered.flatMap((name) => {
    const sum = sumOf(all.get(name));
    const about = `${counted(all.get(name).length, "row")}, ${bytesText(sum)}, ${percent(sum, data.totals.kept_bytes)}`;
    const head = element("th", { colspan: KEPT_COLUMNS.length, scope: "rowgroup" }, name, element("span", {}, about));
    return [element("tr", { class: "group" }, head), ...visible.get(name).map(keptRow)];
  });
}

function groupedBy(rows, of) {
  const groups = new Map();
  for (const row of rows) {
    const name = of(row);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(row);
  }
  return groups;
}

function keptRow(r) {
  const share = r.is_new ? [bar(r.total_bytes, data.totals.kept_bytes, "kept"), percentOf(r.total_bytes, data.totals.kept_bytes)] : ["held"];
  const memory = r.memory === "device" ? null : element("span", { class: "tag" }, r.memory);
  const cells = [
    [valueButton(r.value), " ", element("span", { class: "key" }, ...breakable(r.key, "/")), memory],
    [typeCode(r.type)],
    [r.times > 1 ? r.times.toLocaleString("en") : "1"],
    [bytesText(r.total_bytes)],
    share,
    [r.reason, r.needed_by ? element("span", { class: "quiet" }, ` · read by ${r.needed_by}`) : null],
    [placeText(r.place)],
  ];
  const row = cells.map((cell, i) => tableCell(KEPT_COLUMNS[i], ...cell));
  return element("tr", { class: r.is_new ? null : "held" }, ...row);
}

function valueButton(name) {
  return element("button", { type: "button", class: `value ${valueClass(name)}`, title: "show in the programs", onclick: () => showValue(name, true) }, name);
}

function totalRow(rows) {
  const sum = sumOf(rows);
  const all = sum === data.totals.kept_bytes;
  const title = all ? "kept in all, predicted" : `of ${bytesText(data.totals.kept_bytes)} kept in all, predicted`;
  return element(
    "tr",
    {},
    element("th", { colspan: 3, scope: "row" }, title),
    tableCell({ title: "bytes", number: true }, element("strong", { id: "kept-total", "data-bytes": sum }, bytesText(sum))),
    tableCell({ title: "share", number: true }, percent(sum, data.totals.kept_bytes)),
    element("td", { colspan: 2, class: "filler" }),
  );
}

buildKept();
