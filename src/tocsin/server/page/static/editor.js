// A text area over a coloured copy of its text; a stretch of it may be marked as wrong.
import { h } from "./dom.js";
import { pieces } from "./sql_text.js";

export class Editor {
  constructor(label, text, onInput) {
    this.copy = h("pre", { "aria-hidden": "true" });
    this.area = h("textarea", { "aria-label": label, spellcheck: "false", autocapitalize: "off", autocomplete: "off" });
    this.area.value = text;
    this.element = h("div", { class: "editor" }, this.copy, this.area);
    this.wrong = null;
    this.area.addEventListener("input", () => { this.wrong = null; this.paint(); onInput(); });
    this.paint();
  }

  get text() { return this.area.value; }

  set text(value) { this.area.value = value; this.wrong = null; this.paint(); }

  // Mark the code points from start to end, as the server counts them.
  mark(place) {
    const points = [...this.text];
    const at = (count) => points.slice(0, count).join("").length;
    this.wrong = place ? [at(place.start), Math.max(at(place.end), at(place.start) + 1)] : null;
    this.area.setAttribute("aria-invalid", place ? "true" : "false");
    this.paint();
  }

  paint() {
    this.copy.replaceChildren(coloured(`${this.text} `, this.wrong), "\n");
  }
}

export function coloured(text, wrong = null) {
  const out = document.createDocumentFragment();
  let start = 0;
  for (const [kind, piece] of pieces(text)) {
    const end = start + piece.length;
    const cuts = wrong ? [start, ...wrong.filter((cut) => cut > start && cut < end), end] : [start, end];
    for (let i = 0; i + 1 < cuts.length; i += 1) {
      const part = h("span", { class: kind || null }, text.slice(cuts[i], cuts[i + 1]));
      const isWrong = wrong && cuts[i] >= wrong[0] && cuts[i + 1] <= wrong[1];
      out.append(isWrong ? h("mark", {}, part) : part);
    }
    start = end;
  }
  return out;
}
