// Compares four methods on the same text; a slider sets k for vanilla and uniform.

import { translate } from "./api.js";
import { sizeChart } from "./charts.js";
import { byId, make } from "./dom.js";
import { on, report, session, sourceLanguage, store, targetLanguage } from "./session.js";
import { differences, splitWords } from "./words.js";

const NAMES = {
  base: ["Base", "the model alone"],
  vanilla: ["Vanilla", "fixed λ, tuned on held-out text"],
  uniform: ["Uniform", "all k equally likely"],
  adaptive: ["Adaptive", "Meta-k weights each k for each token"],
};
const DEBOUNCE = 250; // milliseconds
const results = new Map();
let sizes = [0];
let pending = null; // AbortController of the running requests
let timer = 0;

export function setUpMethods() {
  byId("k").addEventListener("input", () => {
    showValue();
    clearTimeout(timer);
    timer = setTimeout(refresh, DEBOUNCE);
  });
  for (const name of ["chosen", "changed", "corrected"]) on(name, () => results.clear());
}

// Called when the view becomes visible.
export function showMethods(maxK) {
  sizes = [0];
  for (let k = 1; k <= maxK; k *= 2) sizes.push(k);
  const slider = byId("k");
  slider.max = String(sizes.length - 1);
  showValue();
  refresh();
}

const chosenK = () => sizes[Number(byId("k").value)] ?? 0;

function showValue() {
  const k = chosenK();
  byId("k-value").textContent = `k = ${k}`;
  byId("k").setAttribute("aria-valuetext", k === 0 ? "0, the model alone" : `${k} neighbours`);
}

async function refresh() {
  const text = byId("source").value.trim();
  const source = byId("methods-source");
  source.textContent = text || "Enter a text under Translate first.";
  source.lang = text ? sourceLanguage() : "en";
  const box = byId("methods-result");
  byId("methods-chart").hidden = true;
  if (!text || !store()) {
    box.replaceChildren();
    return;
  }
  pending?.abort();
  pending = new AbortController();
  const { signal } = pending;
  const k = chosenK();
  const methods = Object.keys(NAMES).filter((name) => store().methods.includes(name));
  box.setAttribute("aria-busy", "true");
  try {
    const found = await Promise.all(methods.map((method) => request(text, method, k, signal)));
    if (signal.aborted) return;
    box.replaceChildren(...methods.map((method, at) => methodRow(method, k, found[at], found[0])));
    showMetakWeights(found[methods.indexOf("adaptive")], k);
  } catch (error) {
    report(error);
  } finally {
    if (!signal.aborted) box.setAttribute("aria-busy", "false");
  }
}

function request(text, method, k, signal) {
  const takesK = method === "vanilla" || method === "uniform";
  const options = { store: session.name, method: takesK && k === 0 ? "base" : method };
  if (takesK && k > 0) options.k = k;
  if (method === "adaptive") options.evidence = true;
  const cacheKey = JSON.stringify([text, options]);
  if (!results.has(cacheKey)) {
    const reply = translate(text, options, signal);
    results.set(cacheKey, reply);
    reply.catch(() => results.delete(cacheKey));
  }
  return results.get(cacheKey);
}

function methodRow(method, k, found, base) {
  const [name, description] = NAMES[method];
  const words = splitWords(found.text, targetLanguage());
  const [changed] = differences(words, splitWords(base.text, targetLanguage()));
  const text = Array.from(found.text);
  let at = 0;
  const nodes = words.flatMap((word, number) => {
    const before = text.slice(at, word.start).join("");
    at = word.end;
    return [before, changed[number] ? make("span", { class: "word is-changed" }, word.text) : word.text];
  });
  const takesK = method === "vanilla" || method === "uniform";
  return make(
    "div",
    { class: "method", "data-method": method },
    make("h3", {}, name, takesK ? make("span", { class: "tag" }, `k = ${k}`) : null, make("small", {}, description)),
    make("p", { class: "prose", lang: targetLanguage(), dir: "auto" }, nodes),
  );
}

function showMetakWeights(adaptive, k) {
  const tokens = (adaptive?.tokens ?? []).filter((token) => token.size_probabilities.length > 1);
  if (!tokens.length) return;
  const mean = tokens[0].size_probabilities.map((size, at) => ({
    k: size.k,
    probability: tokens.reduce((sum, token) => sum + token.size_probabilities[at].probability, 0) / tokens.length,
  }));
  const box = byId("methods-chart");
  box.hidden = false;
  box.replaceChildren(
    make("h2", {}, "Meta-k’s own weights"),
    make("p", { class: "lead" }, "Weight of each k in %, averaged over the tokens of this text. 0 is the model alone."),
    sizeChart(mean, k),
  );
}
