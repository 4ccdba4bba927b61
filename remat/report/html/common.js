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

// Round sizes from 0 to at least the largest, about so many.
function byteTicks(largest, wanted) {
  let step = 1;
  while (step * wanted < largest) step *= 2;
  const ticks = [];
  for (let at = 0; at < largest + step; at += step) ticks.push(at);
  return ticks;
}

function tickText(count) {
  return bytesText(count).replace(".0 ", " ");
}

// A table whose cells carry the titles of their columns, which narrow screens show in place of the head.
// Columns: {title, number: whether it is right-aligned, hidden: whether a narrow screen leaves its title out}.
function tableCell(column, ...children) {
  return element("td", { class: column.number ? "number" : null, "data-title": column.title }, element("div", { class: "cell" }, ...children));
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
