// What the parts of the page share: the store that is chosen, what the caller may do, and word of changes.

import { complain } from "./notices.js";

export const session = { stores: [], name: null, mayEdit: false };
const events = new EventTarget();

export const store = () => session.stores.find((candidate) => candidate.name === session.name) ?? null;
export const sourceLanguage = () => store()?.languages.source ?? "";
export const targetLanguage = () => store()?.languages.target ?? "";

// "chosen": another store, or the same one anew; "changed": its memory is another now;
// "corrected": also that, by the sentence told; "locked": a key is needed.
export const on = (name, listener) => events.addEventListener(name, listener);
export const tell = (name, detail = null) => events.dispatchEvent(new CustomEvent(name, { detail }));

export function report(error) {
  if (error.name === "AbortError") return;
  complain(error);
  if (error.wantsKey) tell("locked");
}

const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

export function languageName(code) {
  try {
    return code ? names.of(code) : "";
  } catch {
    return code; // a model may call its languages anything
  }
}
