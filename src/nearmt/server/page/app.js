// Sets up the page: stores, key, views and translation.

import { hasKey, isLoading, listStores, showStore, translate, useKey, version } from "./api.js";
import { byId, count, make } from "./dom.js";
import { showMemory } from "./memory.js";
import { setUpMethods, showMethods } from "./methods.js";
import { notify } from "./notices.js";
import { showResult } from "./result.js";
import { emit, languageName, on, report, session, sourceLanguage, store, targetLanguage } from "./session.js";
import { setUpUpload } from "./upload.js";

const VIEWS = ["translate", "methods", "memory"];
let pending = null; // AbortController of the running translation
const refreshUpload = setUpUpload();

async function loadStores() {
  while (await isLoading()) {
    byId("result").replaceChildren(make("p", { class: "waiting" }, "The server is loading its stores …"));
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  byId("result").replaceChildren();
  try {
    const found = await listStores();
    session.stores = found.stores;
    session.mayEdit = found.may_edit;
    if (!store()) session.name = (found.stores.find((each) => each.is_usual) ?? found.stores[0])?.name ?? null;
    showStores();
    emit("chosen");
  } catch (error) {
    session.stores = [];
    showStores();
    if (error.status === 401 && !hasKey()) openKey("This server needs a key.");
    else report(error);
  }
}

function showStores() {
  const select = byId("store");
  select.replaceChildren(...session.stores.map((each) => make("option", { value: each.name, selected: each.name === session.name }, each.name)));
  select.disabled = !session.stores.length;
  byId("translate").disabled = !store();
}

function onChosen() {
  const [from, to] = [languageName(sourceLanguage()), languageName(targetLanguage())];
  byId("source-label").textContent = from && to ? `${from} → ${to}` : "Text";
  const source = byId("source");
  source.lang = sourceLanguage();
  source.placeholder = from ? `Type or paste ${from} text` : "Type or paste text";
  byId("stale").hidden = true;
  byId("result").replaceChildren();
  refreshUpload();
  byId("key-toggle").textContent = hasKey() ? "Key ✓" : "Key";
  refreshView();
}

async function translateNow() {
  const text = byId("source").value;
  if (!text.trim() || !store()) return;
  pending?.abort();
  pending = new AbortController();
  const { signal } = pending;
  const name = session.name;
  const box = byId("result");
  box.setAttribute("aria-busy", "true");
  byId("translate").textContent = "Translating …";
  try {
    const [base, adapted] = await Promise.all([
      translate(text, { store: name, method: "base" }, signal),
      translate(text, { store: name, method: defaultMethod(), evidence: true }, signal),
    ]);
    if (signal.aborted) return;
    byId("stale").hidden = true;
    showResult(base, adapted, name);
    if (!adapted.sentences.length) notify("There is no text to translate.", { kind: "bad" });
  } catch (error) {
    report(error);
  } finally {
    if (!signal.aborted) {
      box.setAttribute("aria-busy", "false");
      byId("translate").textContent = "Translate";
    }
  }
}

const defaultMethod = () => (store().methods.includes("adaptive") ? "auto" : "base");

function openKey(reason = null) {
  byId("key-form").hidden = false;
  byId("key-toggle").setAttribute("aria-expanded", "true");
  if (reason) byId("key-hint").textContent = `${reason} The key stays in this tab and is forgotten when you close it.`;
  byId("key").focus();
}

function setUpKey() {
  const form = byId("key-form");
  const toggle = byId("key-toggle");
  const close = () => {
    form.hidden = true;
    toggle.setAttribute("aria-expanded", "false");
  };
  const use = (key) => {
    useKey(key);
    byId("key").value = "";
    close();
    toggle.focus();
    loadStores();
  };
  toggle.addEventListener("click", () => (form.hidden ? openKey() : close()));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    use(byId("key").value);
  });
  byId("key-forget").addEventListener("click", () => use(""));
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    close();
    toggle.focus();
  });
  on("locked", () => openKey());
}

const shownView = () => VIEWS.find((view) => !byId(`view-${view}`).hidden);

function showView(wanted) {
  for (const view of VIEWS) {
    const tab = byId(`tab-${view}`);
    byId(`view-${view}`).hidden = view !== wanted;
    tab.setAttribute("aria-selected", String(view === wanted));
    tab.setAttribute("tabindex", view === wanted ? "0" : "-1");
  }
  refreshView();
}

async function refreshView() {
  if (!store()) return;
  if (shownView() === "memory") showMemory();
  if (shownView() === "methods") {
    try {
      const { adaptation } = await showStore(session.name);
      showMethods(adaptation?.metak?.max_k ?? 0);
    } catch (error) {
      report(error);
    }
  }
}

function setUpViews() {
  VIEWS.forEach((view, at) => {
    const tab = byId(`tab-${view}`);
    tab.addEventListener("click", () => showView(view));
    tab.addEventListener("keydown", (event) => {
      const goal = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: VIEWS.length - 1 }[event.key];
      if (goal === undefined) return;
      event.preventDefault();
      const next = VIEWS[(goal + VIEWS.length) % VIEWS.length];
      showView(next);
      byId(`tab-${next}`).focus();
    });
  });
}

function setUpTranslation() {
  const source = byId("source");
  const size = () => {
    byId("count").textContent = source.value ? `${count(Array.from(source.value).length)} characters` : "";
    source.style.height = "auto";
    source.style.height = `${Math.min(source.scrollHeight + 2, window.innerHeight / 2)}px`;
  };
  source.addEventListener("input", size);
  source.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("translate-form").requestSubmit();
  });
  byId("translate-form").addEventListener("submit", (event) => {
    event.preventDefault();
    translateNow();
  });
  byId("again").addEventListener("click", () => {
    source.focus();
    translateNow();
  });
  on("corrected", async ({ detail }) => {
    await translateNow();
    const pairs = Array.from(byId("result").querySelectorAll(".pair"));
    pairs.find((pair) => pair.dataset.source === detail)?.querySelector(".side-memory .word")?.focus();
  });
  on("changed", () => (byId("stale").hidden = !byId("result").querySelector(".pair")));
  on("changed", () => shownView() === "memory" && showMemory());
  byId("store").addEventListener("change", (event) => {
    session.name = event.target.value;
    emit("chosen");
  });
}

setUpViews();
setUpKey();
setUpMethods();
setUpTranslation();
on("chosen", onChosen);
version().then((found) => (byId("version").textContent = `nearmt ${found.version}`), () => {});
loadStores();
