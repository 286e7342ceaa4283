// A request as a curl command and as Python, in a dialog.
import { savedToken } from "./api.js";
import { h } from "./dom.js";

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

export function curlText({ method, path, body, accept }) {
  const parts = ["curl -sS"];
  if (accept) parts[0] = "curl -sSN", parts.push(`-H 'accept: ${accept}'`);
  else if (method !== "POST" && method !== "GET") parts.push(`-X ${method}`);
  if (savedToken()) parts.push('-H "authorization: Bearer $TOCSIN_TOKEN"');
  if (body !== undefined) parts.push("-H 'content-type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  parts.push(quoted(`${location.origin}/v1${path}`));
  return parts.join(" \\\n  ");
}

// `call` is Python text over a client `remote` of tocsin.remote.
export function pythonText({ call, accept }) {
  const token = savedToken() ? ', token=os.environ["TOCSIN_TOKEN"]' : "";
  const head = `${token ? "import os\n\n" : ""}from tocsin.remote import Remote\n\nremote = Remote(${python(location.origin)}${token})\n`;
  return head + (accept ? `for message in ${call}:\n    print(message)\n` : `print(${call})\n`);
}

// A value of JSON as Python writes it.
export function python(value) {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${python(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

export function copyButton(describe) {
  return h("button", { type: "button", onclick: () => show(describe()) }, "Copy as curl / Python");
}

function show(described) {
  const block = (name, text) => {
    const button = h("button", { type: "button", onclick: () => copy(text, button) }, "Copy");
    return h("section", { class: `as-${name.toLowerCase()}` }, h("div", { class: "row" }, h("h2", {}, name), h("span", { class: "push" }), button), h("pre", {}, text));
  };
  const dialog = h("dialog", { "aria-label": "the same as curl and Python" }, block("curl", curlText(described)), block("Python", pythonText(described)),
    h("div", { class: "row" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch { // not allowed here: select it, so that Ctrl+C copies
    getSelection().selectAllChildren(button.closest("section").querySelector("pre"));
    button.textContent = "Selected: Ctrl+C";
  }
}
