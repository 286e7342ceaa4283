// Deltas as they come: the last ones, drawn at most once a frame, however fast they come.
import { follow } from "./api.js";
import { publishCard } from "./data.js";
import { copyButton } from "./copy_as.js";
import { countText, h } from "./dom.js";

const MOST = 200;

export class Feed {
  constructor(query) {
    this.body = h("tbody", {});
    this.count = h("span", { class: "soft small", role: "status" }, "waiting for deltas");
    this.total = 0;
    this.waiting = [];
    this.isPaused = false;
    this.frame = 0;
    const pause = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
      this.isPaused = !this.isPaused;
      pause.textContent = this.isPaused ? "Go on" : "Hold";
      pause.setAttribute("aria-pressed", String(this.isPaused));
      this.paintSoon();
    } }, "Hold");
    this.element = h("div", {}, h("div", { class: "row" }, pause, this.count, h("span", { class: "push" }),
      copyButton(() => ({ method: "GET", path: `/deltas?${new URLSearchParams(query)}`, accept: "text/event-stream", call: `remote.follow(${query.subscription ?? ""})` }))),
      h("div", { class: "scroll" }, h("table", { class: "deltas" },
        h("thead", {}, h("tr", {}, ["seq", "subscription", "", "row", "why"].map((name) => h("th", {}, name)))), this.body)));
    this.end = follow({ ...query, snapshot: false }, { deltas: (message) => this.take(message), heartbeat: () => {}, slow: (message) => this.resume(query, message) });
  }

  resume(query, message) {
    this.end();
    this.end = follow({ ...query, since: message.token }, { deltas: (more) => this.take(more), slow: (more) => this.resume(query, more) });
  }

  take(message) {
    this.total += message.deltas.length;
    this.waiting.push(...message.deltas.slice(-MOST).map((delta) => ({ ...delta, cause: message.cause })));
    this.waiting.splice(0, this.waiting.length - MOST);
    this.paintSoon();
  }

  paintSoon() {
    this.frame ||= requestAnimationFrame(() => { this.frame = 0; this.paint(); });
  }

  paint() {
    this.count.textContent = `${countText(this.total, "delta")}${this.isPaused ? ", held" : ""}`;
    if (this.isPaused) return;
    const fresh = this.waiting.splice(0).reverse().map((delta) => h("tr", { class: "entered" }, h("td", { class: "number" }, String(delta.seq)),
      h("td", {}, h("a", { href: `#/subscriptions/${delta.subscription}` }, String(delta.subscription)), delta.subscriber ? ` ${delta.subscriber}` : ""),
      h("td", { class: `sign ${delta.sign > 0 ? "plus" : "minus"}` }, delta.sign > 0 ? "+1" : "−1"),
      h("td", {}, h("code", {}, JSON.stringify(delta.row))), h("td", { class: "soft" }, delta.cause)));
    this.body.prepend(...fresh);
    while (this.body.childElementCount > MOST) this.body.lastChild.remove();
  }
}

export function livePlace() {
  const feed = new Feed({});
  const element = h("div", { class: "two" }, publishCard(), h("section", { class: "card" }, h("h2", {}, "Deltas as they come"), feed.element));
  return { element, end: () => feed.end() };
}
