// Requests to /v1, with the token of this tab if there is one; failures are Problems.
const KEY = "tocsin-token";

export const savedToken = () => sessionStorage.getItem(KEY);
export const saveToken = (text) => (text ? sessionStorage.setItem(KEY, text) : sessionStorage.removeItem(KEY));

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail ?? `the server answered ${status}`);
    Object.assign(this, { status, place: body.place, hint: body.hint, rows: body.rows });
  }
}

export async function request(method, path, body, type = "application/json") {
  const headers = {};
  if (savedToken()) headers.authorization = `Bearer ${savedToken()}`;
  if (body !== undefined) headers["content-type"] = type;
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(`/v1${path}`, { method, headers, body: text });
  } catch {
    throw new Problem(0, { detail: "the server does not answer" });
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(response.status, answer);
  return answer;
}

export const get = (path) => request("GET", path);
export const post = (path, body, type) => request("POST", path, body, type);

// Follow deltas; `on` has a function per type of message. Returns what ends it. A browser resumes by itself.
export function follow(query, on) {
  const asked = new URLSearchParams(query);
  if (savedToken()) asked.set("access_token", savedToken());
  const source = new EventSource(`/v1/deltas?${asked}`);
  for (const [type, call] of Object.entries(on)) {
    source.addEventListener(type, (event) => call(event.data ? JSON.parse(event.data) : {}));
  }
  return () => source.close();
}
