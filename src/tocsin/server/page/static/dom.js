// Elements: h("td", {class: "number"}, 5); an `on...` property is a listener.
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  set(element, properties);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function svg(tag, properties = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  set(element, properties);
  element.append(...children.flat());
  return element;
}

function set(element, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
}

// A table of rows that are objects; columns are all keys, in the order they are first seen.
export function rowsTable(rows, classOf = () => "") {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const isNumber = (name) => rows.every((row) => typeof row[name] === "number" || row[name] == null);
  const kind = Object.fromEntries(columns.map((name) => [name, isNumber(name) ? "number" : null]));
  return h("table", {},
    h("thead", {}, h("tr", {}, columns.map((name) => h("th", { class: kind[name] }, name)))),
    h("tbody", {}, rows.map((row, place) => h("tr", { class: classOf(row, place) || null },
      columns.map((name) => h("td", { class: kind[name] }, valueText(row[name])))))));
}

export function valueText(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function numberText(value) {
  return Number.isInteger(value) ? value.toLocaleString("en") : value.toLocaleString("en", { maximumFractionDigits: 1 });
}

export function costText(microseconds) {
  return microseconds < 10_000 ? `${numberText(microseconds)} µs` : `${numberText(microseconds / 1000)} ms`;
}

export function countText(count, noun) {
  return `${numberText(count)} ${noun}${count === 1 ? "" : "s"}`;
}

export function timeText(text) {
  return text ? new Date(text).toLocaleString("sv") : "never";
}

export function bytesText(value) {
  const unit = ["B", "kB", "MB", "GB", "TB"];
  let power = 0;
  while (value >= 1000 && power < 4) { value /= 1000; power += 1; }
  return `${value.toFixed(power ? 1 : 0)} ${unit[power]}`;
}

// Call it once, `wait` milliseconds after the last of several calls.
export function later(wait, call) {
  let timer = 0;
  return (...given) => { clearTimeout(timer); timer = setTimeout(call, wait, ...given); };
}

// A line that says what happened; screen readers read it.
export function messageLine() {
  const line = h("div", { class: "message", role: "status", "aria-live": "polite" });
  line.say = (kind, ...parts) => { line.className = `message ${kind}`; line.replaceChildren(...parts); };
  line.fail = (problem) => line.say("bad", problemText(problem));
  return line;
}

export function problemText(problem) {
  const place = problem.place ? `line ${problem.place.line}, column ${problem.place.column}: ` : "";
  const rows = (problem.rows ?? []).filter((one) => one.reason !== problem.message).slice(0, 3).map((one) => ` · row ${one.row + 1}: ${one.reason}`).join("");
  const message = problem.message.replace(/^row (\d+): /, (_, row) => `row ${Number(row) + 1}: `); // the API counts from 0
  return `${place}${message}${rows}${problem.hint ? ` — ${problem.hint}` : ""}`;
}
