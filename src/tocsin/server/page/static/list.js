// Subscriptions, a page at a time; the server sorts and cuts.
import { get } from "./api.js";
import { costText, countText, h, later, messageLine, numberText, timeText } from "./dom.js";
import { coloured } from "./editor.js";

const SIZE = 50, EVERY = 3000;
const SORTS = [["id", "id"], ["deltas", "deltas"], ["last_fired", "last fired"], ["cost", "cost"]];
const kept = { sort: "id", subscriber: "", pages: [null] };

export function listPlace() {
  const body = h("tbody", {}), count = h("span", { class: "soft", role: "status" }), said = messageLine();
  const subscriber = h("input", { class: "short", id: "of-subscriber", autocomplete: "off" });
  subscriber.value = kept.subscriber;
  let next = null;
  const load = async () => {
    const asked = new URLSearchParams({ limit: SIZE, sort: kept.sort });
    if (kept.pages.at(-1) !== null) asked.set("after", kept.pages.at(-1));
    if (kept.subscriber) asked.set("subscriber", kept.subscriber);
    try {
      const found = await get(`/subscriptions?${asked}`);
      next = found.next;
      body.replaceChildren(...(found.subscriptions.length ? found.subscriptions.map(line) : [nothing(found.total)]));
      count.textContent = `${countText(found.total, "subscription")}, page ${kept.pages.length}${kept.sort === "id" ? "" : "; those that have fired"}`;
      forth.disabled = next === null;
      back.disabled = kept.pages.length === 1;
      said.say("", "");
    } catch (problem) { said.fail(problem); }
  };
  const turn = (change) => { change(); load(); };
  const back = h("button", { type: "button", onclick: () => turn(() => kept.pages.pop()) }, "Previous");
  const forth = h("button", { type: "button", id: "next", onclick: () => turn(() => kept.pages.push(next)) }, "Next");
  subscriber.addEventListener("input", later(200, () => turn(() => Object.assign(kept, { subscriber: subscriber.value.trim(), pages: [null] }))));
  const heads = new Map();
  const head = ([sort, name]) => {
    const cell = h("th", { class: "number" }, h("button", { class: "plain", type: "button", onclick: () => turn(() => { Object.assign(kept, { sort, pages: [null] }); mark(); }) }, name));
    heads.set(sort, cell);
    return cell;
  };
  const mark = () => heads.forEach((cell, sort) => (sort === kept.sort ? cell.setAttribute("aria-sort", sort === "id" ? "ascending" : "descending") : cell.removeAttribute("aria-sort")));
  const [id, ...others] = SORTS.map(head);
  mark();
  const element = h("section", { class: "card" }, h("div", { class: "row" }, h("h1", {}, "Subscriptions"), count, h("span", { class: "push" }),
    h("label", {}, "subscriber", subscriber), back, forth), said,
    h("table", { id: "subscriptions" }, h("thead", {}, h("tr", {}, id, h("th", {}, "query"), h("th", {}, "shape"), h("th", {}, "state"), h("th", {}, "subscriber"), others)), body));
  load();
  const timer = setInterval(() => { if (!document.hidden && !body.contains(document.activeElement)) load(); }, EVERY);
  return { element, end: () => clearInterval(timer) };
}

function nothing(total) {
  const words = total ? ["none of them has fired yet"] : kept.subscriber ? ["this subscriber has none"] : ["none yet: write one under ", h("a", { href: "#/query" }, "Query")];
  return h("tr", {}, h("td", { class: "soft", colspan: 8 }, words));
}

function line(one) {
  return h("tr", {}, h("td", { class: "number" }, h("a", { href: `#/subscriptions/${one.id}` }, String(one.id))),
    h("td", {}, h("code", { class: "one-line", title: one.sql }, coloured(one.sql))), h("td", {}, one.shape ?? "–"), h("td", {}, one.state ?? "active"), h("td", {}, one.subscriber ?? ""),
    h("td", { class: "number" }, numberText(one.deltas ?? 0)), h("td", { class: "number" }, timeText(one.last_fired)), h("td", { class: "number" }, costText(one.cost_us ?? 0)));
}
