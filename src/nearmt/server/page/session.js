// State shared by the parts of the page: the selected store, permissions, and events.

import { notifyError } from "./notices.js";

export const session = { stores: [], name: null, mayEdit: false };
const events = new EventTarget();

export const store = () => session.stores.find((candidate) => candidate.name === session.name) ?? null;
export const sourceLanguage = () => store()?.languages.source ?? "";
export const targetLanguage = () => store()?.languages.target ?? "";

// Events: "chosen" (a store was selected or reloaded), "changed" (its memory changed), "corrected" (a sentence was
// corrected; its source is the detail), "locked" (a key is needed).
export const on = (name, listener) => events.addEventListener(name, listener);
export const emit = (name, detail = null) => events.dispatchEvent(new CustomEvent(name, { detail }));

export function report(error) {
  if (error.name === "AbortError") return;
  notifyError(error);
  if (error.wantsKey) emit("locked");
}

const names = new Intl.DisplayNames(["en"], { type: "language", fallback: "code" });

export function languageName(code) {
  try {
    return code ? names.of(code) : "";
  } catch {
    return code; // not a language tag: models may use any code
  }
}
