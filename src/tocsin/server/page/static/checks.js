// Why a row is in an answer or not, condition by condition.
import { h, problemText } from "./dom.js";

const WORDS = new Map([[true, ["yes", "yes"]], [false, ["no", "no"]], [null, ["?", "maybe"]]]);
const VERDICTS = new Map([[true, "match"], [false, "no match"], [null, "unknown"]]);

export function verdict(held) {
  return h("span", { class: `badge ${WORDS.get(held)[1]}` }, VERDICTS.get(held));
}

export function reasons(found) {
  const lines = found.checks.map((check) => {
    const [word, kind] = WORDS.get(check.held);
    const why = check.why ? h("span", { class: "soft small" }, check.why) : null;
    return h("li", { class: `level-${Math.min(check.level, 3)}` }, h("span", { class: `badge ${kind}` }, word), h("code", {}, check.text), why);
  });
  const notes = found.notes.map((note) => h("li", { class: "soft" }, note));
  return h("ul", { class: "checks" }, lines, notes);
}

export function trial(row, found) {
  if (found.problem) {
    const said = problemText({ message: found.problem.detail, ...found.problem });
    return h("div", { class: "trial" }, h("span", { class: "badge no" }, "cannot be tried"), h("code", {}, JSON.stringify(row)), h("div", { class: "message bad" }, said));
  }
  return h("div", { class: "trial" }, verdict(found.held), h("code", {}, JSON.stringify(row)), reasons(found));
}

// Rows of a text: JSON objects in lines, or one array.
export function readRows(text) {
  const trimmed = text.trim();
  if (!trimmed) return [];
  if (trimmed.startsWith("[")) return JSON.parse(trimmed);
  try {
    return [JSON.parse(trimmed)];
  } catch {
    return trimmed.split("\n").filter((line) => line.trim()).map((line, place) => {
      try { return JSON.parse(line); } catch (error) { throw new Error(`line ${place + 1} is not JSON: ${error.message}`); }
    });
  }
}
