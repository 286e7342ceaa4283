// A query: written with its errors at their place, tried on rows, replayed over the past, registered.
import { get, post } from "./api.js";
import { chart } from "./chart.js";
import { readRows, trial } from "./checks.js";
import { copyButton, python } from "./copy_as.js";
import { h, later, messageLine, numberText, rowsTable, timeText } from "./dom.js";
import { Editor } from "./editor.js";
import { relationList } from "./data.js";

const kept = { sql: "", rows: "", subscriber: "" }; // while another place is open

export function queryPlace() {
  const place = new QueryPlace();
  place.check();
  return { element: place.element, end: () => {} };
}

class QueryPlace {
  constructor() {
    this.editor = new Editor("SQL", kept.sql, () => { kept.sql = this.editor.text; this.said.say("", ""); this.checkSoon(); });
    this.status = messageLine();
    this.said = messageLine();
    this.tables = [];
    this.isDefinition = false;
    this.number = 0;
    this.checkSoon = later(150, () => this.check());
    this.trySoon = later(200, () => this.tryRows());
    this.element = h("div", {}, h("div", { class: "two wide" }, this.writing(), this.relations()), h("div", { class: "two" }, this.trying(), this.past()));
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); this.register(); }
    });
  }

  writing() {
    this.subscriber = h("input", { class: "short", id: "subscriber", autocomplete: "off" });
    this.subscriber.value = kept.subscriber;
    this.subscriber.addEventListener("input", () => { kept.subscriber = this.subscriber.value; });
    this.button = h("button", { class: "main", type: "button", id: "register", onclick: () => this.register() }, "Subscribe");
    this.copy = copyButton(() => ({ method: "POST", ...this.described() }));
    return h("section", { class: "card" }, h("h1", {}, "Query"), this.editor.element, this.status,
      h("div", { class: "row" }, this.button, h("label", {}, "subscriber", this.subscriber), h("span", { class: "push" }), this.copy), this.said);
  }

  relations() {
    const list = h("div", {});
    relationList(list, (text) => { this.editor.text = text; kept.sql = text; this.check(); this.editor.area.focus(); });
    return h("section", { class: "card" }, h("h2", {}, "Streams and tables"), list);
  }

  trying() {
    this.rows = h("textarea", { id: "rows", "aria-label": "rows to try, JSON objects in lines", spellcheck: "false", placeholder: '{"attribute": 1}' });
    this.rows.value = kept.rows;
    this.rows.addEventListener("input", () => { kept.rows = this.rows.value; this.trySoon(); });
    this.results = h("div", { class: "scroll", id: "results" });
    this.tried = messageLine();
    return h("section", { class: "card" }, h("h2", {}, "Try it on events or rows"), this.rows,
      h("div", { class: "row" }, h("button", { type: "button", id: "sample", onclick: () => this.sample() }, "Sample"),
        h("span", { class: "soft small" }, "nothing is published")), this.tried, this.results);
  }

  past() {
    this.found = h("div", { id: "past" }, h("p", { class: "soft small" }, "The events that the stream keeps (CREATE STREAM … RETAIN '1 hour') are replayed; nothing is registered."));
    return h("section", { class: "card" }, h("h2", {}, "Backtest"),
      h("div", { class: "row" }, h("button", { type: "button", id: "backtest", onclick: () => this.backtest() }, "Replay what the stream retains"),
        h("span", { class: "push" }), copyButton(() => ({ method: "POST", path: "/backtest", body: { sql: this.editor.text }, call: `remote.backtest(${python(this.editor.text)})` }))), this.found);
  }

  described() {
    if (this.isDefinition) return { path: "/definitions", body: { sql: this.editor.text }, call: `remote.define(${python(this.editor.text)})` };
    const subscriber = this.subscriber.value.trim();
    return { path: "/subscriptions", body: { sql: this.editor.text, ...(subscriber ? { subscriber } : {}) },
      call: `remote.subscribe(${python(this.editor.text)}${subscriber ? `, subscriber=${python(subscriber)}` : ""})` };
  }

  async check() {
    const number = (this.number += 1), sql = this.editor.text;
    if (!sql.trim()) { this.status.say("soft", "Write a SELECT to subscribe to, or CREATE STREAM … and CREATE TABLE …"); return; }
    try {
      const found = await post("/validate", { sql });
      if (number !== this.number) return;
      this.isDefinition = found.shape === "definition";
      this.tables = found.tables;
      this.button.textContent = this.isDefinition ? "Create" : "Subscribe";
      this.editor.mark(null);
      const warnings = found.warnings.map((warning) => h("div", { class: "soft small" }, warning));
      this.status.say("good", h("span", { class: "badge yes" }, found.shape), ` over ${found.tables.join(", ")}`, ...warnings);
      this.tryRows();
    } catch (problem) {
      if (number !== this.number) return;
      this.editor.mark(problem.place);
      this.status.fail(problem);
      this.results.replaceChildren();
    }
  }

  async register() {
    const { path, body } = this.described();
    try {
      const done = await post(path, body);
      if (this.isDefinition) {
        this.said.say("good", "created");
        const fresh = this.relations();
        this.element.firstChild.lastChild.replaceWith(fresh);
      } else {
        this.said.say("good", `subscription ${done.id} is registered: `, h("a", { href: `#/subscriptions/${done.id}` }, "its content and deltas"));
      }
    } catch (problem) {
      this.editor.mark(problem.place);
      this.said.fail(problem);
    }
  }

  async sample() {
    try {
      const found = this.tables.length ? await get(`/relations/${encodeURIComponent(this.tables[0])}/sample?limit=5`) : { rows: [] };
      if (!found.rows.length) { this.tried.say("soft", "there are no rows to sample; a stream keeps events if it is declared with RETAIN"); return; }
      kept.rows = this.rows.value = found.rows.map((row) => JSON.stringify(row)).join("\n");
      this.tried.say("", "");
      this.tryRows();
    } catch (problem) { this.tried.fail(problem); }
  }

  async tryRows() {
    let rows;
    try { rows = readRows(this.rows.value); } catch (error) { this.tried.say("bad", error.message); return; }
    if (!rows.length || this.isDefinition || !this.editor.text.trim()) { this.results.replaceChildren(); return; }
    try {
      const found = await post("/try", { sql: this.editor.text, rows: rows.slice(0, 200) });
      this.tried.say("", "");
      this.results.replaceChildren(...found.results.map((one, place) => trial(rows[place], one)));
    } catch (problem) { this.results.replaceChildren(); this.tried.fail(problem); }
  }

  async backtest() {
    this.found.replaceChildren(h("p", { class: "soft" }, "replaying …"));
    try {
      const found = await post("/backtest", { sql: this.editor.text, limit: 50 });
      const share = `${numberText(found.matched)} of ${numberText(found.events)} events would have matched`;
      const when = found.begin ? `, ${timeText(found.begin)} to ${timeText(found.end)}` : "";
      this.found.replaceChildren(h("p", {}, share + when), found.histogram.length ? chart(found.histogram) : "",
        found.rows.length ? h("div", { class: "scroll" }, rowsTable(found.rows)) : "");
    } catch (problem) {
      const said = messageLine();
      said.fail(problem);
      this.found.replaceChildren(said);
    }
  }
}
