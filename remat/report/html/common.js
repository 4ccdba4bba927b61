// The data of the page, and how elements and sizes are made; texts go in as text, never as markup.
"use strict";

const data = JSON.parse(document.getElementById("report-data").textContent);

function textOf(number) {
  return data.texts[number];
}

function withAttributes(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function element(tag, attributes, ...children) {
  return withAttributes(document.createElement(tag), attributes, children);
}

function drawn(tag, attributes, ...children) {
  return withAttributes(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// A size for people, as in the text reports: 16 B, 1.5 KiB, 12.0 MiB.
function bytesText(count) {
  let size = count;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]) {
    if (Math.abs(size) < 1024 || unit === "PiB") return unit === "B" ? `${size} B` : `${size.toFixed(1)} ${unit}`;
    size /= 1024;
  }
}

function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

function percent(part, whole) {
  return whole ? `${((100 * part) / whole).toFixed(1)} %` : "";
}

function percentOf(part, whole) {
  return element("span", { class: "percent" }, percent(part, whole));
}

// Round sizes from at most the least to at least the largest, about so many.
function byteTicks(least, largest, wanted) {
  let step = 1;
  while (step * wanted < largest - least) step *= 2;
  const ticks = [Math.floor(least / step) * step];
  while (ticks[ticks.length - 1] < largest) ticks.push(ticks[ticks.length - 1] + step);
  return ticks;
}

// A size on an axis: exact where two more digits make it so.
function tickText(count) {
  const [, unit] = bytesText(count).split(" ");
  const size = count / 1024 ** ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].indexOf(unit);
  return `${Number(size.toFixed(2))} ${unit}`;
}

// A table that scrolls by itself where it is too wide.
function tableBox(attributes, ...children) {
  return element("div", { class: "table-box" }, element("table", attributes, ...children));
}

// A cell with the title of its column, which narrow screens show beside it in place of the head.
function tableCell(column, ...children) {
  return element("td", { class: column.number ? "number" : null, "data-title": column.title }, element("div", { class: "cell" }, ...children));
}

// A text that may break after each of these characters.
function breakable(text, after) {
  const parts = text.split(after);
  return parts.flatMap((part, i) => (i < parts.length - 1 ? [part + after, element("wbr")] : [part]));
}

// A type, which breaks between its dimensions where it has to.
function typeCode(type) {
  return element("code", { class: "whole" }, ...breakable(type, ","));
}

// A place in the code: its file and line stay together, the function may go below.
function placeText(place) {
  const [line, ...rest] = place.split(" (");
  return rest.length ? element("span", { class: "place" }, element("span", {}, line), ` (${rest.join(" (")}`) : place;
}

function bar(part, whole, kind) {
  const width = whole ? Math.max(0.5, (100 * part) / whole) : 0;
  return element("span", { class: "bar", "aria-hidden": "true" }, element("span", { class: kind, style: `width:${width}%` }));
}

// Draw now, and again whenever the width of a box has changed.
function redrawnToFit(box, draw) {
  let width = 0;
  new ResizeObserver(() => {
    if (box.clientWidth !== width) {
      width = box.clientWidth;
      draw();
    }
  }).observe(box);
}
