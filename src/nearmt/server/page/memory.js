// The store: contents, origins, trained settings and health.

import { showStore } from "./api.js";
import { barList, horizontalBar } from "./charts.js";
import { byId, count, date, make, percent } from "./dom.js";
import { languageName, report, session } from "./session.js";

const SHOWN = 12;

export async function showMemory() {
  const box = byId("memory");
  if (!session.name) return;
  box.setAttribute("aria-busy", "true");
  try {
    const found = await showStore(session.name);
    box.replaceChildren(summary(found), make("div", { class: "halves" }, originsCard(found), trainingCard(found)), healthCard(found));
  } catch (error) {
    report(error);
  } finally {
    box.setAttribute("aria-busy", "false");
  }
}

function summary(found) {
  const { source, target } = found.languages;
  const tiles = [
    ["Sentences", count(found.sentences)],
    ["Entries", count(found.entries)],
    ["Languages", source && target ? `${languageName(source)} → ${languageName(target)}` : "—"],
    ["Model", found.model, found.engine],
    ["Last changed", date(found.changed_at), `version ${count(found.version)}`],
  ];
  return make(
    "div",
    { class: "card" },
    make("h2", {}, found.name),
    make(
      "dl",
      { class: "tiles" },
      tiles.map(([name, value, more]) => make("div", {}, make("dt", {}, name), make("dd", {}, value, more ? make("small", {}, more) : null))),
    ),
  );
}

function originsCard(found) {
  const most = Math.max(1, ...found.origins.map((origin) => origin.units));
  const rows = found.origins.slice(0, SHOWN).map((origin) =>
    make(
      "tr",
      {},
      make("th", { scope: "row", class: "origin" }, origin.name ?? "—"),
      make("td", { class: "number weight" }, count(origin.units), horizontalBar(origin.units / most)),
      make("td", { class: "number" }, date(origin.last_date)),
    ),
  );
  const head = [["Origin", null], ["Units", "number"], ["Last change", "number"]];
  return make(
    "div",
    { class: "card" },
    make("h2", {}, "Origins"),
    make(
      "table",
      { class: "slim" },
      make("thead", {}, make("tr", {}, head.map(([name, kind]) => make("th", { scope: "col", class: kind }, name)))),
      make("tbody", {}, rows),
    ),
    found.origins.length > SHOWN ? make("p", { class: "hint" }, `and ${count(found.origins.length - SHOWN)} more`) : null,
  );
}

function trainingCard(found) {
  const trained = found.adaptation;
  if (!trained) {
    return make("div", { class: "card" }, make("h2", {}, "Training"), make("p", {}, "Not trained yet: run nearmt train on this store."));
  }
  const { metak, vanilla, uniform, held_out: held } = trained;
  const settings = [
    ["Adaptive", `K ≤ ${metak.max_k}`, `T = ${number(metak.temperature)}`],
    ["Vanilla", `K = ${vanilla.k}`, `T = ${number(vanilla.temperature)}, λ = ${number(vanilla.knn_share)}`],
    ["Uniform", `K ≤ ${uniform.max_k}`, `T = ${number(uniform.temperature)}`],
  ];
  const losses = ["base", "uniform", "vanilla", "adaptive"]
    .map((name) => ({ name: name.charAt(0).toUpperCase() + name.slice(1), value: held?.[`${name}_loss`] }))
    .filter((loss) => typeof loss.value === "number");
  const recall = found.index?.recall;
  return make(
    "div",
    { class: "card" },
    make("h2", {}, "Training"),
    make("table", { class: "slim" }, make("tbody", {}, settings.map(([name, ...rest]) => make("tr", {}, make("th", { scope: "row" }, name), rest.map((value) => make("td", {}, value)))))),
    losses.length
      ? make(
          "figure",
          {},
          make("figcaption", {}, make("strong", {}, "Loss on held-out text"), make("span", { class: "hint" }, ` lower is better; ${count(held.sentences)} sentences`)),
          barList(losses, { marked: "Adaptive", format: (value) => value.toFixed(2), most: Math.max(...losses.map((loss) => loss.value)) }),
        )
      : null,
    make("p", { class: "hint" }, describeIndex(found.index, recall)),
  );
}

const number = (value) => (typeof value === "number" ? String(Number(value.toPrecision(3))) : "—");

function describeIndex(index, recall) {
  if (!index || index.factory === "Flat") return "Exact search: every neighbour is found.";
  if (typeof recall?.recall !== "number") return `Index ${index.factory}; recall not measured.`;
  return `Index ${index.factory} finds ${percent(recall.recall)} of the ${recall.k} nearest neighbours (recall) and ${percent(recall.mass)} of their weight.`;
}

function healthCard(found) {
  const health = found.health;
  const due = [
    ...health.compaction_due.map((reason) => `Compaction is due: ${reason} (nearmt compact).`),
    ...(health.training_due ? ["Training is due: much of the memory has changed since the last training (nearmt train)."] : []),
  ];
  const facts = [
    ["Removed, not yet compacted", percent(health.removed_share)],
    ["Not yet indexed", percent(health.new_share)],
    ["Changed since training", health.changed_since_training === null ? "—" : percent(health.changed_since_training)],
  ];
  const dropped = Object.entries(found.dropped);
  return make(
    "div",
    { class: "card" },
    make("h2", {}, "Health ", make("span", { class: due.length ? "tag tag-due" : "tag" }, due.length ? "maintenance due" : "✓ good")),
    make("dl", { class: "tiles" }, facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value)))),
    due.map((sentence) => make("p", {}, sentence)),
    dropped.length ? make("p", { class: "hint" }, `Left out when the store was built: ${dropped.map(([reason, many]) => `${count(many)} ${reason}`).join(", ")}.`) : null,
  );
}
