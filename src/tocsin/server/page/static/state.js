// The server: its log, engine and followers; tenant, token, deliveries.
import { get, saveToken, savedToken } from "./api.js";
import { bytesText, h, messageLine, numberText } from "./dom.js";

export function serverPlace() {
  const figures = h("div", { class: "figures" }), shapes = h("div", {}), raw = h("pre", { class: "box" }), said = messageLine(), who = h("section", { class: "card" });
  const load = async () => {
    try {
      const stats = await get("/stats");
      const { log, engine } = stats;
      const known = [["position of the log", numberText(log.position)], ["epoch", log.epoch], ["followers", numberText(stats.followers)],
        ["subscriptions", numberText(engine.subscriptions)], ["rows", numberText(Object.values(engine.rows ?? {}).reduce((sum, count) => sum + count, 0))],
        ...Object.entries(log).filter(([name, value]) => typeof value === "number" && name.includes("bytes")).map(([name, value]) => [`log: ${name.replaceAll("_", " ")}`, bytesText(value)])];
      figures.replaceChildren(...known.map(([name, value]) => h("div", {}, h("span", { class: "soft small" }, name), h("b", {}, String(value)))));
      shapes.replaceChildren(pairs("subscriptions by shape", engine.by_shape), pairs("rows by table", engine.rows));
      raw.textContent = JSON.stringify(stats, null, 2);
      said.say("", "");
    } catch (problem) { said.fail(problem); }
  };
  load();
  describeAccess(who);
  const timer = setInterval(() => { if (!document.hidden) load(); }, 2000);
  const element = h("div", {}, h("section", { class: "card" }, h("h1", {}, "Server"), said, figures), h("div", { class: "two" }, h("section", { class: "card" }, shapes), who),
    h("details", { class: "card" }, h("summary", {}, "all counters"), raw));
  return { element, end: () => clearInterval(timer) };
}

function pairs(name, found) {
  const entries = Object.entries(found ?? {}).filter(([, count]) => count);
  return h("div", {}, h("h2", {}, name), entries.length ? h("table", {}, h("tbody", {}, entries.map(([key, count]) => h("tr", {}, h("td", {}, key), h("td", { class: "number" }, numberText(count)))))) : h("p", { class: "soft" }, "none"));
}

async function describeAccess(who) {
  const [found, deliveries] = await Promise.all([get("/access"), get("/deliveries").catch(() => ({}))]);
  const lines = [["tenant", found.tenant], ["allowed", found.scopes.join(", ")], ...Object.entries(found.quota).map(([name, value]) => [`quota: ${name.replaceAll("_", " ")}`, String(value)])];
  const tokens = found.tokens.length ? h("table", { id: "tokens" }, h("thead", {}, h("tr", {}, h("th", {}, "token"), h("th", {}, "for"))), h("tbody", {}, found.tokens.map((one) => h("tr", {}, h("td", {}, one.name), h("td", {}, one.scopes.join(", ")))))) : "";
  const end = savedToken() ? h("div", { class: "row" }, h("button", { type: "button", onclick: () => { saveToken(""); location.reload(); } }, "Use another token")) : "";
  const list = deliveries.deliveries ?? [];
  who.replaceChildren(h("h2", {}, "Access"), found.is_open ? h("p", { class: "soft" }, "There are no tokens: whoever reaches this server may do everything. ", h("code", {}, "tocsin tokens add"), " makes one.") : "",
    h("table", {}, h("tbody", {}, lines.map(([name, value]) => h("tr", {}, h("td", { class: "soft" }, name), h("td", {}, value))))), tokens, end,
    list.length ? h("div", {}, h("h2", {}, "Deliveries"), h("pre", { class: "box" }, JSON.stringify(list, null, 2))) : "");
}

// A form for a token, where access control is on.
export function tokenPlace(problem, again) {
  const field = h("input", { type: "password", id: "token", autocomplete: "off", required: true, "aria-label": "token" });
  const form = h("form", { class: "card", onsubmit: (event) => { event.preventDefault(); saveToken(field.value.trim()); again(); } },
    h("h1", {}, "This server has tokens"), h("p", { class: savedToken() ? "message bad" : "soft" }, `${problem.message}. It is kept in this tab only.`), h("div", { class: "row" }, field, h("button", { class: "main" }, "Go on")));
  return { element: form, end: () => {} };
}
