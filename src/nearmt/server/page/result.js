// Translations side by side, one row per sentence: the model alone and with the memory.

import { openCorrection, wasCorrected } from "./correct.js";
import { byId, make, rove } from "./dom.js";
import { openEvidence } from "./evidence.js";
import { session, sourceLanguage, targetLanguage } from "./session.js";
import { differences, overrulesModel, rows, tokensOf } from "./words.js";

export function showResult(base, adaptive, storeName) {
  const box = byId("result");
  const language = targetLanguage();
  const plain = rows(base, language);
  const adapted = rows(adaptive, language);
  box.replaceChildren();
  if (!adapted.length) return;
  box.append(legend(), ...adapted.map((row, number) => sentenceRow(row, plain[number], number)));

  function sentenceRow(row, plainRow, number) {
    const [gone, changed] = differences(plainRow.words, row.words);
    const drawer = make("div", { class: "drawer" });
    const words = row.words.map((word, at) => wordButton(row, word, changed[at], drawer));
    const line = make("p", { class: "prose", lang: language, dir: "auto", role: "group" }, between(row, words));
    line.setAttribute("aria-label", "Translation with the memory: move by arrow keys, press Enter for evidence");
    rove(line, words);
    const plainWords = plainRow.words.map((word, at) =>
      make("span", { class: gone[at] ? "gone" : null }, word.text),
    );
    const article = make(
      "article",
      { class: "card pair", "data-source": row.source, "aria-label": adapted.length > 1 ? `Sentence ${number + 1}` : "Translation" },
      adapted.length > 1 ? make("p", { class: "pair-source prose", lang: sourceLanguage(), dir: "auto" }, row.source) : null,
      make(
        "div",
        { class: "sides" },
        make(
          "div",
          { class: "side" },
          make("h3", { class: "eyebrow" }, "Model alone"),
          make("p", { class: "prose plain", lang: language, dir: "auto" }, between(plainRow, plainWords)),
        ),
        make(
          "div",
          { class: "side side-memory" },
          make("h3", { class: "eyebrow" }, "With the memory"),
          line,
          actions(row, drawer),
        ),
      ),
      drawer,
    );
    return article;
  }

  function wordButton(row, word, isChanged, drawer) {
    const start = row.start + word.start;
    const tokens = tokensOf(adaptive.tokens ?? [], start, row.start + word.end);
    const isOverruled = tokens.some(overrulesModel);
    const label = isChanged ? `${word.text}, not in the translation of the model alone` : isOverruled ? `${word.text}, chosen by the memory` : word.text;
    const open = () => {
      if (document.getSelection()?.toString()) return; // the user is selecting text, not clicking
      openEvidence({ drawer, word, tokens, button, storeName });
    };
    const button = make(
      "span",
      {
        class: ["word", isChanged && "is-changed", isOverruled && "is-overruled"].filter(Boolean).join(" "),
        role: "button",
        "aria-label": label,
        "aria-expanded": "false",
        on: {
          click: open,
          keydown: (event) => {
            if (event.key !== "Enter" && event.key !== " ") return;
            event.preventDefault();
            document.getSelection()?.removeAllRanges();
            open();
          },
        },
      },
      word.text,
    );
    return button;
  }

  function actions(row, drawer) {
    const correct = make(
      "button",
      {
        type: "button",
        class: "quiet",
        "data-action": "correct",
        on: { click: () => openCorrection({ drawer, row, button: correct, storeName }) },
      },
      "Correct",
    );
    const copy = make(
      "button",
      {
        type: "button",
        class: "quiet",
        on: {
          click: async () => {
            await navigator.clipboard.writeText(row.text);
            copy.textContent = "Copied";
            setTimeout(() => (copy.textContent = "Copy"), 1500);
          },
        },
      },
      "Copy",
    );
    return make(
      "div",
      { class: "pair-actions" },
      wasCorrected(storeName, row) ? make("span", { class: "tag" }, "✓ your correction") : null,
      session.mayEdit ? correct : null,
      navigator.clipboard ? copy : null,
    );
  }
}

// The elements of the words with the white space between them.
function between(row, elements) {
  const text = Array.from(row.text);
  const nodes = [];
  let at = 0;
  row.words.forEach((word, number) => {
    nodes.push(text.slice(at, word.start).join(""), elements[number]);
    at = word.end;
  });
  return [...nodes, text.slice(at).join("")];
}

function legend() {
  return make(
    "p",
    { class: "legend hint" },
    make("span", {}, make("span", { class: "word is-changed" }, "word"), " not in the translation of the model alone"),
    make("span", {}, make("span", { class: "word is-overruled" }, "word"), " the memory overruled the model"),
    make("span", {}, "Select a word to see its evidence."),
  );
}
