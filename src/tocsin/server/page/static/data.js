// Streams and tables: what they are, some of their rows, and a form that publishes.
import { get, post } from "./api.js";
import { readRows } from "./checks.js";
import { copyButton, python } from "./copy_as.js";
import { h, messageLine, rowsTable } from "./dom.js";
import { coloured } from "./editor.js";

export async function relationList(list, choose) {
  try {
    const { definitions } = await get("/definitions");
    list.replaceChildren(...definitions.map((one) => h("details", {},
      h("summary", {}, h("code", {}, one.name), " ", h("span", { class: "badge" }, one.kind)),
      h("div", { class: "small soft" }, one.open ? "open: events may have any attributes" : one.columns.map((column) => `${column.name} ${column.type}`).join(", ")),
      h("button", { type: "button", class: "small", onclick: () => choose(`SELECT * FROM ${one.name}`) }, `SELECT * FROM ${one.name}`))));
    if (!definitions.length) list.replaceChildren(h("p", { class: "soft" }, "None yet. Write CREATE STREAM hits, for example."));
  } catch (problem) { list.replaceChildren(h("p", { class: "message bad" }, problem.message)); }
}

export function dataPlace() {
  const cards = h("div", {});
  const element = h("div", {}, h("h1", {}, "Streams and tables"), cards);
  load(cards);
  return { element, end: () => {} };
}

async function load(cards) {
  const { definitions } = await get("/definitions");
  cards.replaceChildren(...definitions.map((one) => {
    const rows = h("div", { class: "scroll" });
    const show = async () => {
      const found = await get(`/relations/${encodeURIComponent(one.name)}/sample?limit=20`);
      const none = one.kind === "stream" ? "no events are retained" : "it is empty";
      rows.replaceChildren(found.rows.length ? rowsTable(found.rows) : h("p", { class: "soft" }, none));
    };
    return h("section", { class: "card" }, h("pre", { class: "box" }, coloured(one.sql)),
      h("div", { class: "row" }, h("button", { type: "button", onclick: show }, one.kind === "stream" ? "Last events" : "Some rows")), rows);
  }));
  if (!definitions.length) cards.replaceChildren(h("p", {}, "None yet: ", h("a", { href: "#/query" }, "create some")));
}

// A form that publishes events or changes rows.
export function publishCard() {
  const relation = h("select", { id: "relation", "aria-label": "stream or table" });
  const op = h("select", { id: "op", "aria-label": "what is done with rows" }, ["insert", "upsert", "update", "delete"].map((name) => h("option", {}, name)));
  const rows = h("textarea", { id: "publish-rows", "aria-label": "events or rows, JSON objects in lines", spellcheck: "false" });
  const said = messageLine();
  const kinds = new Map();
  const path = () => `/changes/${encodeURIComponent(relation.value)}${kinds.get(relation.value)?.kind === "table" ? `?op=${op.value}` : ""}`;
  const adapt = () => { op.hidden = kinds.get(relation.value)?.kind !== "table"; };
  relation.addEventListener("change", adapt);
  const publish = async () => {
    try {
      const done = await post(path(), readRows(rows.value));
      said.say("good", `${done.applied} applied; token ${done.token}`);
    } catch (problem) { said.fail(problem); }
  };
  const sample = async () => {
    const known = kinds.get(relation.value);
    if (!known) return;
    const found = (await get(`/relations/${encodeURIComponent(relation.value)}/sample?limit=1`)).rows;
    rows.value = JSON.stringify(found[0] ?? Object.fromEntries(known.columns.map((column) => [column.name, null])));
  };
  const fill = async () => {
    const { definitions } = await get("/definitions");
    definitions.forEach((one) => kinds.set(one.name, one));
    relation.replaceChildren(...definitions.map((one) => h("option", {}, one.name)));
    adapt();
  };
  fill();
  const card = h("section", { class: "card" }, h("h2", {}, "Publish"), h("div", { class: "row" }, relation, op), h("div", { class: "row" }, rows),
    h("div", { class: "row" }, h("button", { class: "main", type: "button", id: "publish", onclick: publish }, "Publish"),
      h("button", { type: "button", onclick: sample }, "Sample"), h("span", { class: "push" }),
      copyButton(() => ({ method: "POST", path: path(), body: readRows(rows.value), call: `remote.publish(${python(relation.value)}, ${python(readRows(rows.value))}${op.hidden ? "" : `, op=${python(op.value)}`})` }))), said);
  card.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); publish(); } });
  return card;
}
