// Calls the native API and turns its errors into messages for the user.

const STORAGE_KEY = "nearmt.key";
let key = sessionStorage.getItem(STORAGE_KEY) ?? "";

export const hasKey = () => key !== "";

export function useKey(value) {
  key = value.trim();
  if (key) sessionStorage.setItem(STORAGE_KEY, key);
  else sessionStorage.removeItem(STORAGE_KEY);
}

export class ServerError extends Error {
  constructor(status, code, message, wait = null) {
    super(message);
    Object.assign(this, { status, code, wait });
  }

  get wantsKey() {
    return this.status === 401 || this.code === "wrong_key" || this.code === "not_allowed";
  }
}

const sentence = (text) => {
  const trimmed = text.trim();
  const first = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
};

// Advice added to the server's message.
const ADVICE = {
  401: "Enter your key at the top of the page.",
  403: "Enter another key at the top of the page.",
  409: "Try again in a moment.",
  413: "Make it shorter, or send it in parts.",
  504: "Try a shorter text.",
};

function explain(status, body, wait) {
  const message = typeof body?.error?.message === "string" ? sentence(body.error.message) : null;
  const advice = wait !== null ? `Try again in ${wait} s.` : ADVICE[status];
  const code = body?.error?.code ?? "";
  const fits = code !== "wrong_origin" && code !== "wrong_host";
  if (message === null) return `The server returned an error (${status}). ${fits && advice ? advice : ""}`.trim();
  if (status === 401) return ADVICE[401];
  return fits && advice ? `${message} ${advice}` : message;
}

const headers = () => (key ? { Authorization: `Bearer ${key}` } : {});

function failure(status, text, retryAfter) {
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    body = null; // not from our server: a proxy may answer with anything
  }
  const wait = [429, 503].includes(status) && /^\d+$/.test(retryAfter ?? "") ? Number(retryAfter) : null;
  return new ServerError(status, body?.error?.code ?? "", explain(status, body, wait), wait);
}

const unreachable = () => new ServerError(0, "unreachable", "Cannot reach the server. Is it running?");

async function call(method, path, { body, query, signal } = {}) {
  const parameters = new URLSearchParams(
    Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined),
  ).toString();
  const options = { method, headers: headers(), signal, credentials: "omit" };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(parameters ? `${path}?${parameters}` : path, options);
  } catch (error) {
    throw error.name === "AbortError" ? error : unreachable();
  }
  const text = await reply.text();
  if (!reply.ok) throw failure(reply.status, text, reply.headers.get("Retry-After"));
  return JSON.parse(text);
}

const storePath = (name) => `v1/stores/${encodeURIComponent(name)}`;

export const version = () => call("GET", "v1/version");
export const listStores = () => call("GET", "v1/stores");
export const showStore = (name) => call("GET", storePath(name));
export const showJob = (id) => call("GET", `v1/jobs/${encodeURIComponent(id)}`);
export const addUnits = (store, units, { keepBoth = false } = {}) =>
  call("POST", `${storePath(store)}/units`, { body: { units, keep_both: keepBoth } });
export const removePair = (store, source, target) =>
  call("DELETE", `${storePath(store)}/units`, { query: { source, target } });

export async function isLoading() {
  try {
    await call("GET", "v1/ready");
    return false;
  } catch (error) {
    return error.status === 503;
  }
}

export async function translate(text, options, signal) {
  const reply = await call("POST", "v1/translate", { body: { text, ...options }, signal });
  return reply.translations[0];
}

// XMLHttpRequest, because fetch does not report upload progress.
export function importFile(store, file, origin, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", `${storePath(store)}/import`);
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => {
      if (event.lengthComputable) onProgress(event.loaded / event.total);
    });
    request.addEventListener("error", () => reject(unreachable()));
    request.addEventListener("load", () => {
      if (request.status === 202) resolve(JSON.parse(request.responseText));
      else reject(failure(request.status, request.responseText, request.getResponseHeader("Retry-After")));
    });
    const form = new FormData();
    form.append("file", file, file.name);
    if (origin) form.append("origin", origin);
    request.send(form);
  });
}
