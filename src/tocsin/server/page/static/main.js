// Places by the part of the address after #, the state in the head, keys.
import { get } from "./api.js";
import { dataPlace } from "./data.js";
import { detailPlace } from "./detail.js";
import { livePlace } from "./feed.js";
import { listPlace } from "./list.js";
import { queryPlace } from "./query.js";
import { serverPlace, tokenPlace } from "./state.js";

const PLACES = { query: queryPlace, subscriptions: listPlace, live: livePlace, data: dataPlace, server: serverPlace };
const NAMES = Object.keys(PLACES);
const main = document.getElementById("main"), health = document.getElementById("health");
let current = { end: () => {} };

async function show() {
  const [name = "query", id] = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  const known = NAMES.includes(name) ? name : "query";
  current.end();
  document.querySelectorAll("header nav a").forEach((link) => {
    if (link.hash === `#/${known}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  });
  const problem = await get("/access").then(() => null, (error) => error);
  if (problem?.status === 401) current = tokenPlace(problem, () => { show(); });
  else current = known === "subscriptions" && /^-?\d+$/.test(id ?? "") ? detailPlace(id) : PLACES[known]();
  main.replaceChildren(current.element);
}

async function look() {
  try {
    const found = await get("/health");
    health.className = found.status;
    health.textContent = found.status === "ok" ? "running" : found.detail;
  } catch (problem) {
    health.className = "failed";
    health.textContent = problem.message;
  }
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.documentElement.style.colorScheme = theme;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => localStorage.getItem("tocsin-theme") ?? (dark.matches ? "dark" : "light");
setTheme(chosen());
dark.addEventListener("change", () => setTheme(chosen()));
document.getElementById("theme").addEventListener("click", () => {
  localStorage.setItem("tocsin-theme", chosen() === "dark" ? "light" : "dark");
  setTheme(chosen());
});
addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.altKey && !event.ctrlKey && /^[1-5]$/.test(event.key)) {
    event.preventDefault();
    location.hash = `#/${NAMES[Number(event.key) - 1]}`;
    main.focus();
  }
});
show();
look();
setInterval(look, 5000);
