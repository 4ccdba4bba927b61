// The forward and the backward program: kept values alike on both sides, recomputation marked, long stretches folded.

const COLORS = 8;
const FOLDED = 8; // quiet lines in a row that are folded, in programs of more lines than UNFOLDED
const UNFOLDED = 60;
const PROGRAM_LINES = 250;
const LEGEND = 16;

// The kept values, by their name in the programs: their number, and whether keeping them takes memory.
const keptValues = new Map(
  data.residuals.rows.map((row, i) => [row[1], { number: i, isNew: row[data.residuals.columns.indexOf("is_new")] === 1 }]),
);
const sides = ["forward", "backward"].map((name) => ({ name, ...data.programs[name], opened: new Set(), shown: PROGRAM_LINES }));
let pinned = null;

function valueClass(name) {
  const found = keptValues.get(name);
  if (!found) return "";
  return found.isNew ? `is-kept color-${found.number % COLORS}` : "is-held";
}

function isNotable(side, [, outputs, , inputs, recomputed, , , title]) {
  const isKept = (name) => keptValues.has(name) && keptValues.get(name).isNew;
  return title || recomputed || outputs.some(([name]) => isKept(name)) || (side.name === "backward" && inputs.some(isKept));
}

// What is shown of a side: numbers of lines, and [first, end] of stretches that are folded.
function itemsOf(side) {
  const items = [];
  let quiet = 0;
  for (let i = 0; i <= side.lines.length; i++) {
    const breaks = i === side.lines.length || i === side.left_out_after || isNotable(side, side.lines[i]);
    if (breaks) {
      const first = i - quiet;
      if (quiet >= FOLDED && side.lines.length > UNFOLDED && !side.opened.has(first)) items.push([first, i]);
      else for (let j = first; j < i; j++) items.push(j);
      quiet = 0;
      if (i < side.lines.length) {
        if (isNotable(side, side.lines[i])) items.push(i);
        else quiet = 1;
      }
    } else {
      quiet += 1;
    }
  }
  return items;
}

function drawSide(side) {
  const items = itemsOf(side);
  const rows = items.slice(0, side.shown).flatMap((item) => {
    const first = Array.isArray(item) ? item[0] : item;
    const gap = side.left_out && first === side.left_out_after ? [leftOut(side)] : [];
    return [...gap, Array.isArray(item) ? foldRow(side, item) : lineRow(side, item)];
  });
  if (items.length > side.shown) rows.push(moreRow(side, items.length - side.shown));
  side.box.replaceChildren(...rows);
  markPinned();
}

function lineRow(side, index) {
  const [depth, outputs, text, inputs, recomputed, bytes, place, title] = side.lines[index];
  const number = index + (side.left_out && index >= side.left_out_after ? side.left_out : 0);
  const defined = outputs.flatMap(([name, type], i) => [i ? ", " : "", valueSpan(name), element("span", { class: "type" }, `: ${textOf(type)}`)]);
  const read = inputs.flatMap((name) => [" ", valueSpan(name)]);
  const isEquation = outputs.length > 0 && textOf(text) !== "constant";
  const content = title ? [textOf(text), "(", ...defined, ")"] : isEquation ? [...defined, " = ", textOf(text), ...read] : [textOf(text), outputs.length ? " " : "", ...defined, ...read];
  const about = [bytes ? bytesText(bytes) : "", textOf(place)].filter(Boolean).join(", ");
  return element(
    "div",
    { class: `code-line${recomputed ? " recomputed" : ""}${title ? " title" : ""}`, title: about || null },
    element("span", { class: "line-number" }, number + 1),
    element("span", { class: "mark" }, recomputed ? "↻" : ""),
    element("span", { class: "code-text", style: `padding-left:${2 * depth + (title ? 0 : 1)}ch` }, ...content),
  );
}

function valueSpan(name) {
  return keptValues.has(name)
    ? element("span", { class: `value ${valueClass(name)}`, "data-value": name, onclick: () => showValue(name, false) }, name)
    : element("span", { "data-value": name }, name);
}

function foldRow(side, [first, end]) {
  const open = () => {
    side.opened.add(first);
    side.shown += end - first;
    drawSide(side);
  };
  return element("button", { type: "button", class: "fold", onclick: open }, `… ${end - first} lines that keep and recompute nothing`);
}

function moreRow(side, count) {
  const more = () => {
    side.shown += 2 * PROGRAM_LINES;
    drawSide(side);
  };
  return element("button", { type: "button", class: "fold", onclick: more }, `Show more, there are ${count.toLocaleString("en")}`);
}

function leftOut(side) {
  return element("div", { class: "fold" }, `${side.left_out.toLocaleString("en")} lines are left out of this page`);
}

// Pin a value: it stands out on both sides, which are scrolled to it. Pressed again where it stands, it is let go.
function showValue(name, scroll) {
  pinned = pinned === name && !scroll ? null : name;
  if (pinned !== null) {
    const found = sides.map(revealValue);
    const missing = sides.filter((side, i) => !found[i]).map((side) => side.name);
    const note = missing.length ? `${name} is made or read in lines of the ${missing.join(" and the ")} program that are left out.` : "";
    document.getElementById("programs-note").textContent = note;
    if (scroll) document.getElementById("programs").scrollIntoView({ block: "start" });
  }
  markPinned();
}

// Scroll a side to the line that makes or reads the pinned value, or else to where it enters or leaves the program.
// Returns false if that line may be among those that are left out.
function revealValue(side) {
  const mentions = ([, outputs, , inputs]) => outputs.some(([name]) => name === pinned) || inputs.includes(pinned);
  const found = side.lines.findIndex((line) => !line[7] && textOf(line[2]) !== "return" && mentions(line));
  const isThere = found >= 0 || !side.left_out;
  const index = found >= 0 ? found : side.lines.findIndex(mentions);
  if (index < 0) return isThere;
  const folded = itemsOf(side).find((item) => Array.isArray(item) && item[0] <= index && index < item[1]);
  if (folded) side.opened.add(folded[0]);
  const at = itemsOf(side).indexOf(index);
  if (folded || at >= side.shown) {
    side.shown = Math.max(side.shown, at + PROGRAM_LINES);
    drawSide(side);
  }
  const spans = [...side.box.querySelectorAll(`[data-value="${pinned}"]`)];
  const span = spans.find((s) => !s.closest(".title")) || spans[0];
  if (span) side.box.scrollTop += span.getBoundingClientRect().top - side.box.getBoundingClientRect().top - side.box.clientHeight / 3;
  return isThere;
}

function markPinned() {
  for (const span of document.querySelectorAll("#programs .pinned")) span.classList.remove("pinned");
  if (pinned === null) return;
  for (const span of document.querySelectorAll(`#programs [data-value="${pinned}"]`)) span.classList.add("pinned");
}

function markHovered(event) {
  const value = event.target.dataset ? event.target.dataset.value : undefined;
  for (const span of document.querySelectorAll("#programs .hovered")) span.classList.remove("hovered");
  if (value === undefined) return;
  for (const span of document.querySelectorAll(`#programs [data-value="${value}"]`)) span.classList.add("hovered");
}

function legend() {
  const columns = data.residuals.columns;
  const [value, bytes, isNew] = ["value", "total_bytes", "is_new"].map((name) => columns.indexOf(name));
  const rows = data.residuals.rows.filter((row) => row[isNew]).sort((a, b) => b[bytes] - a[bytes]);
  if (!rows.length) return element("p", { class: "note" }, "Nothing is kept but what the caller holds anyway.");
  const chips = rows.slice(0, LEGEND).map((row) =>
    element(
      "button",
      { type: "button", class: "chip", onclick: () => showValue(row[value], false) },
      element("span", { class: `value ${valueClass(row[value])}`, "data-value": row[value] }, row[value]),
      ` ${bytesText(row[bytes])}`,
    ),
  );
  const rest = rows.length > LEGEND ? element("span", { class: "quiet" }, `and ${counted(rows.length - LEGEND, "other")} in the table above`) : null;
  return element("div", { class: "legend", "aria-label": "Kept values, the largest first" }, element("span", {}, "Kept: "), ...chips, rest);
}

function buildPrograms() {
  const recomputed = data.programs.recomputed;
  const again = recomputed ? `${counted(recomputed, "line")} of the backward pass compute something again and are marked ↻.` : "Nothing is computed again.";
  document.getElementById("programs-lead").textContent = `Kept values have one name and colour on both sides; press one to find it. ${again}`;
  const columns = sides.map((side) => {
    side.box = element("div", { class: "code", tabindex: 0, role: "region", "aria-label": `The ${side.name} program` });
    const title = element("h3", {}, `${side.name[0].toUpperCase()}${side.name.slice(1)} pass `, element("span", { class: "quiet" }, counted(side.count, "line")));
    return element("div", { class: "side" }, title, side.box);
  });
  const note = element("p", { class: "note", id: "programs-note", "aria-live": "polite" });
  const both = element("div", { class: "sides", onpointerover: markHovered }, ...columns);
  document.getElementById("programs-body").replaceChildren(legend(), note, both);
  sides.forEach(drawSide);
}

buildPrograms();
