// Evidence for a word: the model's own candidates, the weights of k, and the neighbours.

import { addUnits, removePair } from "./api.js";
import { barList, horizontalBar, sizeChart } from "./charts.js";
import { count, date, make, percent, rove } from "./dom.js";
import { notify } from "./notices.js";
import { emit, report, session, sourceLanguage, targetLanguage } from "./session.js";
import { characters, overrulesModel, shownToken as shown } from "./words.js";

const SHOWN = 8;

export function openEvidence({ drawer, word, tokens, button, storeName }) {
  const close = () => {
    drawer.replaceChildren();
    button.setAttribute("aria-expanded", "false");
    button.classList.remove("is-open");
    button.focus();
  };
  for (const other of document.querySelectorAll(".word[aria-expanded=true]")) {
    other.setAttribute("aria-expanded", "false");
    other.classList.remove("is-open");
  }
  for (const other of document.querySelectorAll(".drawer")) other.replaceChildren();
  button.setAttribute("aria-expanded", "true");
  button.classList.add("is-open");
  const heading = make("h3", { tabindex: "-1" }, "Why “", make("span", { lang: targetLanguage() }, word.text), "”");
  const body = make("div", { class: "evidence-body" });
  const panel = make(
    "section",
    {
      class: "evidence",
      "aria-label": `Why ${word.text}`,
      on: {
        keydown: (event) => {
          if (event.key === "Escape") close();
        },
      },
    },
    make(
      "div",
      { class: "card-head" },
      heading,
      make("button", { type: "button", class: "quiet close", "aria-label": "Close the evidence", on: { click: close } }, "×"),
    ),
    tokens.length > 1 ? tokenTabs(tokens, (token) => showToken(body, token, storeName)) : null,
    body,
  );
  if (tokens.length) showToken(body, mainToken(tokens), storeName);
  else body.append(make("p", {}, "No evidence for this word."));
  drawer.replaceChildren(panel);
  heading.focus({ preventScroll: true });
  panel.scrollIntoView({ block: "nearest" });
}

const mainToken = (tokens) => tokens.find(overrulesModel) ?? tokens[0];

// A word may consist of several tokens, each with its own evidence.
function tokenTabs(tokens, choose) {
  const chosen = mainToken(tokens);
  const buttons = tokens.map((token) =>
    make(
      "button",
      {
        type: "button",
        class: overrulesModel(token) ? "token is-overruled" : "token",
        "aria-pressed": String(token === chosen),
        on: {
          click: (event) => {
            for (const other of buttons) other.setAttribute("aria-pressed", String(other === event.currentTarget));
            choose(token);
          },
        },
      },
      shown(token.token),
    ),
  );
  return make("div", { class: "token-tabs", role: "group", "aria-label": "Tokens of this word" }, make("span", { class: "hint" }, "Tokens"), buttons);
}

function showToken(body, token, storeName) {
  const first = token.nmt_first_choices[0];
  body.replaceChildren(
    make(
      "p",
      { class: "verdict" },
      overrulesModel(token)
        ? `The model alone would have chosen “${shown(first.token)}”. The memory raised “${shown(token.token)}” from ${percent(token.nmt_probability)} to ${percent(token.probability)}.`
        : token.is_models_first_choice
          ? `The model alone would have chosen this too: ${percent(token.nmt_probability)} without the memory, ${percent(token.probability)} with it.`
          : `Chosen by beam search because it gives the best sentence: ${percent(token.nmt_probability)} without the memory, ${percent(token.probability)} with it.`,
    ),
    make(
      "div",
      { class: "charts" },
      make(
        "figure",
        {},
        make("figcaption", {}, make("strong", {}, "Meta-k’s weights"), make("span", { class: "hint" }, " for each k, in %; 0 is the model alone")),
        sizeChart(token.size_probabilities),
      ),
      make(
        "figure",
        {},
        make("figcaption", {}, make("strong", {}, "Candidates of the model alone")),
        barList(token.nmt_first_choices.map((choice) => ({ name: shown(choice.token), value: choice.probability })), { marked: shown(token.token) }),
      ),
    ),
    neighborTable(token, storeName),
  );
}

function neighborTable(token, storeName) {
  if (!token.neighbors.length) return make("p", { class: "hint" }, "The memory was not searched for this token.");
  const removals = new Map(); // store, source and target → rows and removed units
  const most = Math.max(...token.neighbors.map((neighbor) => neighbor.weight));
  const rows = token.neighbors.map((neighbor) => neighborRow(neighbor, most, removals, storeName));
  const table = make("tbody", {}, rows);
  rove(table, rows, { next: "ArrowDown", previous: "ArrowUp" });
  rows.slice(SHOWN).forEach((row) => (row.hidden = true));
  const more = make(
    "button",
    {
      type: "button",
      class: "quiet",
      on: {
        click: () => {
          rows.forEach((row) => (row.hidden = false));
          rows[SHOWN].focus();
          more.remove();
        },
      },
    },
    `Show all ${count(rows.length)} neighbours`,
  );
  const head = ["Source segment", "Target segment", "Origin", "Distance²", "Weight"];
  return make(
    "div",
    { class: "neighbors" },
    make(
      "table",
      {},
      make("caption", {}, make("strong", {}, "Nearest neighbours in the memory"), make("span", { class: "hint" }, session.mayEdit ? " Press Delete to remove a segment" : "")),
      make("thead", {}, make("tr", {}, head.map((name, at) => make("th", { scope: "col", class: at > 2 ? "number" : null }, name)), session.mayEdit ? make("th", { scope: "col" }, make("span", { class: "unseen" }, "Remove")) : null)),
      table,
    ),
    rows.length > SHOWN ? more : null,
  );
}

function neighborRow(neighbor, most, removals, storeName) {
  const pairKey = `${neighbor.store}\n${neighbor.source}\n${neighbor.target}`;
  const target = characters(neighbor.target);
  const marked = target.slice(neighbor.target_start, neighbor.target_end).join("");
  const lead = marked.length - marked.trimStart().length;
  const button = make("button", { type: "button", class: "quiet remove", on: { click: () => toggle() } }, "Remove");
  const row = make(
    "tr",
    {
      on: {
        keydown: (event) => {
          if (event.target === row && event.key === "Delete" && session.mayEdit && !removals.get(pairKey)?.units) toggle();
        },
      },
    },
    make("td", { "data-name": "Source", lang: sourceLanguage(), dir: "auto" }, neighbor.source),
    make(
      "td",
      { "data-name": "Target", lang: targetLanguage(), dir: "auto" },
      target.slice(0, neighbor.target_start).join(""),
      marked.slice(0, lead),
      make("mark", {}, marked.trimStart() || "⏎"),
      target.slice(neighbor.target_end).join(""),
    ),
    make("td", { "data-name": "Origin", class: "origin" }, neighbor.origin ?? "—", make("small", {}, date(neighbor.changed_at))),
    make("td", { "data-name": "Distance²", class: "number" }, neighbor.squared_distance.toPrecision(3)),
    make("td", { "data-name": "Weight", class: "number weight" }, percent(neighbor.weight), horizontalBar(most > 0 ? neighbor.weight / most : 0)),
    session.mayEdit ? make("td", { class: "row-action" }, button) : null,
  );
  const known = removals.get(pairKey) ?? { rows: [], units: null };
  known.rows.push({ row, button });
  removals.set(pairKey, known);

  async function toggle() {
    for (const each of known.rows) each.button.disabled = true;
    try {
      await (known.units ? undo() : remove());
    } catch (error) {
      report(error);
    }
    for (const each of known.rows) each.button.disabled = false;
  }

  async function remove() {
    const store = neighbor.store ?? storeName;
    const reply = await removePair(store, neighbor.source, neighbor.target);
    markRemoved(reply.removed);
    notify(reply.units ? "Removed from the memory." : "It had already been removed.", {
      action: reply.units ? { name: "Undo", run: () => known.units && toggle() } : null,
    });
  }

  async function undo() {
    await addUnits(neighbor.store ?? storeName, known.units, { keepBoth: true });
    markRemoved(null);
    notify("Restored to the memory.");
  }

  function markRemoved(units) {
    known.units = units;
    for (const each of known.rows) {
      each.row.classList.toggle("is-removed", units !== null);
      each.button.textContent = units ? "Undo" : "Remove";
    }
    emit("changed");
  }

  return row;
}
