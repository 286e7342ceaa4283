// One subscription: its content as rows enter and leave, its deltas, reasons, actions.
import { follow, get, post, request } from "./api.js";
import { readRows, trial } from "./checks.js";
import { copyButton } from "./copy_as.js";
import { costText, countText, h, later, messageLine, numberText, rowsTable, timeText } from "./dom.js";
import { coloured } from "./editor.js";
import { Feed } from "./feed.js";

const SHOWN = 200, COMPARED = 5000, LEAVING = 2500; // rows, rows, milliseconds

export function detailPlace(id) {
  const content = new Content(id), feed = new Feed({ subscription: id });
  const about = h("section", { class: "card" });
  const load = () => describe(id, about, load);
  load();
  const timer = setInterval(() => { if (!about.contains(document.activeElement)) load(); }, 3000);
  const element = h("div", {}, about, h("div", { class: "two" }, content.element,
    h("div", {}, h("section", { class: "card" }, h("h2", {}, "Deltas"), feed.element), reasonsCard(id))));
  return { element, end: () => { clearInterval(timer); content.end(); feed.end(); } };
}

async function describe(id, about, load) {
  const said = messageLine();
  const act = (method, path, then) => async () => {
    try { await request(method, path); then(); } catch (problem) { said.fail(problem); }
  };
  try {
    const one = await get(`/subscriptions/${id}`);
    const isPaused = one.state === "paused";
    const figures = [["shape", one.shape ?? "–"], ["state", one.state ?? "active"], ["subscriber", one.subscriber ?? "–"], ["deltas", numberText(one.deltas ?? 0)],
      ["last fired", timeText(one.last_fired)], ["cost so far", costText(one.cost_us ?? 0)]];
    const remove = h("button", { type: "button", onclick: () => {
      if (remove.dataset.sure) act("DELETE", `/subscriptions/${id}`, () => { location.hash = "#/subscriptions"; })();
      remove.dataset.sure = "yes";
      remove.textContent = "Remove it: sure?";
    } }, "Remove");
    about.replaceChildren(h("h1", {}, `Subscription ${id}`), h("pre", { class: "box" }, coloured(one.sql)), h("div", { class: "figures" }, figures.map(([name, value]) => h("div", {}, h("span", { class: "soft small" }, name), h("b", {}, value)))),
      h("div", { class: "row" }, h("button", { type: "button", onclick: act("POST", `/subscriptions/${id}/${isPaused ? "resume" : "pause"}`, load) }, isPaused ? "Resume" : "Pause"), remove,
        h("span", { class: "push" }), copyButton(() => ({ method: "GET", path: `/subscriptions/${id}/content`, call: `remote.content(${id})` }))), said);
  } catch (problem) { about.replaceChildren(h("h1", {}, `Subscription ${id}`), h("p", { class: "message bad" }, problem.message)); }
}

// The answer: read again when deltas come, and compared with what is shown.
class Content {
  constructor(id) {
    this.id = id;
    this.rows = null;
    this.total = 0;
    this.table = h("div", { class: "scroll", id: "content" });
    this.count = h("span", { class: "soft small", role: "status" });
    this.element = h("section", { class: "card" }, h("div", { class: "row" }, h("h2", {}, "Content"), this.count), this.table);
    const soon = later(30, () => this.load());
    this.leaving = later(LEAVING, () => this.paint(this.rows, []));
    this.end = follow({ subscription: id, snapshot: false }, { deltas: soon, heartbeat: () => {} });
    this.load();
  }

  async load() {
    try {
      const { rows: found, total } = await get(`/subscriptions/${this.id}/content?limit=${COMPARED}`);
      const before = total <= COMPARED && this.total <= COMPARED ? this.rows : null; // of longer ones the first rows only
      this.rows = found;
      this.total = total;
      this.paint(found, before === null ? [] : difference(before, found), before === null ? null : difference(found, before));
    } catch (problem) { this.table.replaceChildren(h("p", { class: "soft" }, problem.message)); }
  }

  paint(rows, left, entered = []) {
    this.count.textContent = this.total > SHOWN ? `${numberText(this.total)} rows, the first ${SHOWN}` : countText(this.total, "row");
    const fresh = new Set(entered ?? []);
    const shown = [...rows.slice(0, SHOWN), ...left.slice(0, SHOWN)];
    const gone = new Set(left);
    if (!shown.length) { this.table.replaceChildren(h("p", { class: "soft" }, "no rows (a filter over a stream has none: see its deltas)")); return; }
    this.table.replaceChildren(rowsTable(shown, (row) => (gone.has(row) ? "left" : fresh.has(row) ? "entered" : "")));
    if (left.length) this.leaving();
  }
}

// The rows of `some` that are not in `others`, counting equal rows.
function difference(some, others) {
  const counts = new Map();
  for (const row of others) { const key = JSON.stringify(row); counts.set(key, (counts.get(key) ?? 0) + 1); }
  return some.filter((row) => {
    const key = JSON.stringify(row), count = counts.get(key) ?? 0;
    counts.set(key, count - 1);
    return count <= 0;
  });
}

function reasonsCard(id) {
  const rows = h("textarea", { id: "why-rows", "aria-label": "a row, as JSON", spellcheck: "false", placeholder: '{"attribute": 1}' });
  const results = h("div", { id: "why" }), said = messageLine();
  const explain = async () => {
    try {
      const given = readRows(rows.value);
      const found = await Promise.all(given.slice(0, 20).map((row) => post(`/subscriptions/${id}/explain`, { row })));
      said.say("", "");
      results.replaceChildren(...found.map((one, place) => trial(given[place], one)));
    } catch (problem) { results.replaceChildren(); said.fail(problem); }
  };
  return h("section", { class: "card" }, h("h2", {}, "Why a row is in it, or not"), rows, h("div", { class: "row" }, h("button", { type: "button", id: "explain", onclick: explain }, "Explain")), said, results);
}
