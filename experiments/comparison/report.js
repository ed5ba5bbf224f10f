"use strict";
// The table of all cells, the interactive figures and the Gantt charts of a report; texts are set as text, never as HTML.
const island = id => JSON.parse(document.getElementById(id).textContent);
const make = (tag, properties, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};
const place = document.querySelector("[data-cells]"), data = island(place.dataset.cells), PAGE = 50;
const columns = data.columns, folder = i => `../cells/${encodeURIComponent(data.cells[i])}/`;
const filters = columns.map(() => make("input", {oninput: () => show(0), placeholder: "filter"}));
const value = (column, i) => column.levels ? column.levels[column.values[i]] : column.values[i];
const command = i => data.commands[i].map(word => data.words[word]).join(" ");
const compare = {"<": (a, b) => a < b, "<=": (a, b) => a <= b, ">": (a, b) => a > b, ">=": (a, b) => a >= b};
let order = data.cells.map((_, i) => i), page = 0;

function passes(filter, value) {
  const [, sign, bound] = /^\s*(<=|>=|<|>|=)?\s*(.*?)\s*$/.exec(filter), text = String(value ?? "").toLowerCase();
  if (!sign) return bound.toLowerCase().split(/\s+/).every(word => text.includes(word));
  if (bound === "") return true;
  if (sign === "=") return text === bound.toLowerCase();
  return value !== null && value !== "" && compare[sign](Number(value), Number(bound));
}
function sort(button, column) {
  const down = button.ariaSort === "ascending", key = i => value(column, i);
  for (const other of place.querySelectorAll("th button")) other.ariaSort = "none";
  button.ariaSort = down ? "descending" : "ascending";
  const order_of = column.levels ? (a, b) => a.localeCompare(b, "en", {numeric: true}) : (a, b) => a - b;
  const missing = i => key(i) === null || key(i) === "";  // last, whatever the direction
  order.sort((i, j) => missing(i) - missing(j) || (missing(i) ? 0 : (down ? -1 : 1) * order_of(key(i), key(j))) || i - j);
  show(0);
}
async function copy(button, text) {
  try { await navigator.clipboard.writeText(text); button.textContent = "copied"; }
  catch { prompt("Copy the command:", text); }
}
function detail(i) {
  const chart = make("div", {className: "interactive", id: `gantt=${data.cells[i]}`}), text = command(i);
  const how = data.trace[i] ? "This Gantt chart is not in the report" : "The cell kept no trace (traces=true keeps it)";
  const cell = make("div", {}, make("b", {}, `Cell ${data.cells[i]}`), chart);
  if (data.errors[i]) cell.append(make("p", {className: "failed"}, data.errors[i]));
  if (text) cell.append(make("p", {}, "Repeats this cell alone: ", make("code", {}, text)));
  if (data.gantt.includes(data.cells[i])) document.head.append(make("script", {src: `gantt/${encodeURIComponent(data.cells[i])}.js`}));
  else cell.append(make("p", {className: "note"}, `${how}; ${text ? "the command draws gantt.png." : "nothing here draws one."}`));
  return make("tr", {className: "detail"}, make("td", {colSpan: columns.length + 1}, cell));
}
function gantt(cell, figure) {  // called by the file that detail() loads
  draw(document.getElementById(`gantt=${cell}`), figure);
}
function draw(place, figure) {
  return Plotly.newPlot(place, figure.data, figure.layout, {responsive: true, displaylogo: false, showSendToCloud: false, modeBarButtonsToRemove: ["select2d", "lasso2d"]});
}
function row(i) {
  const cells = columns.map(column => {
    const shown = value(column, i), between = column.low && column.low[i] !== null;
    const text = between ? `${shown} [${column.low[i]}, ${column.high[i]}]` : String(shown ?? "–");
    return make("td", {className: column.levels ? "left" : ""}, text);
  });
  const open = make("button", {className: "gantt"}, data.gantt.includes(data.cells[i]) ? "Gantt" : "more");
  const links = make("td", {className: "left"}, open), made = make("tr", {id: `cell=${data.cells[i]}`}, links, ...cells);
  open.onclick = () => made.nextSibling?.className === "detail" ? made.nextSibling.remove() : made.after(detail(i));
  if (data.trace[i]) links.append(make("a", {href: `${folder(i)}trace.json`}, "trace"));
  if (data.result[i]) links.append(make("a", {href: `${folder(i)}result.json`}, "config"));
  if (command(i)) links.append(make("button", {className: "copy", onclick: event => copy(event.target, command(i))}, "copy command"));
  return made;
}
function show(number) {
  const found = order.filter(i => columns.every((column, k) => passes(filters[k].value, value(column, i))));
  const last = Math.max(Math.ceil(found.length / PAGE) - 1, 0);
  page = Math.min(Math.max(number, 0), last);
  body.replaceChildren(...found.slice(page * PAGE, (page + 1) * PAGE).map(row));
  count.textContent = `${found.length} of ${order.length} cells, page ${page + 1} of ${last + 1} `;
  return found;
}
const headings = columns.map((column, k) => {
  const button = make("button", {onclick: () => sort(button, column)}, column.name);
  return make("th", {className: column.levels ? "left" : ""}, button, filters[k]);
});
const body = make("tbody"), count = make("span", {id: "count", role: "status"});
const turn = (text, step) => make("button", {onclick: () => show(page + step)}, text);
const clear = make("button", {onclick: () => { for (const box of filters) box.value = ""; show(0); }}, "clear filters");
const head = make("thead", {}, make("tr", {}, make("th"), ...headings));
place.append(make("p", {}, count, turn("previous", -1), turn("next", 1), clear), make("table", {}, head, body));
function only(point) {  // the cells behind a point of a figure
  columns.forEach((c, k) => { filters[k].value = c.levels?.includes(String(point[c.name])) ? `=${point[c.name]}` : ""; });
  show(0);
  document.getElementById("cells").scrollIntoView();
}
function follow() {  // #cell=NAME opens that cell
  const i = data.cells.indexOf(decodeURIComponent(location.hash.replace("#cell=", "")));
  if (i < 0) return;
  for (const box of filters) box.value = "";
  show(Math.floor(order.indexOf(i) / PAGE));
  document.getElementById(`cell=${data.cells[i]}`).after(detail(i));
  document.getElementById(`cell=${data.cells[i]}`).scrollIntoView();
}
show(0);
addEventListener("hashchange", follow);
addEventListener("load", () => {
  for (const figure of document.querySelectorAll("[data-figure]")) {
    draw(figure, island(figure.dataset.figure)).then(() =>
      figure.on("plotly_click", event => event.points[0].customdata && only(event.points[0].customdata)));
  }
  follow();
});
