// The translations side by side: a row for each sentence, the model alone beside the model with its memory.

import { openCorrection, wasCorrected } from "./correct.js";
import { byId, make, rove } from "./dom.js";
import { openEvidence } from "./evidence.js";
import { session, sourceLanguage, targetLanguage } from "./session.js";
import { differences, isPulled, rows, tokensOf } from "./words.js";

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
    line.setAttribute("aria-label", "With the memory, word by word: arrow keys move, Enter shows why");
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
    const isOverruled = tokens.some(isPulled);
    const said = isChanged ? `${word.text}, not in the model’s own translation` : isOverruled ? `${word.text}, chosen by the memory` : word.text;
    const open = () => {
      if (document.getSelection()?.toString()) return; // somebody is selecting text, not clicking
      openEvidence({ drawer, word, tokens, button, storeName });
    };
    const button = make(
      "span",
      {
        class: ["word", isChanged && "is-changed", isOverruled && "is-pulled"].filter(Boolean).join(" "),
        role: "button",
        "aria-label": said,
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

// Words as elements, with the white space of the text between them.
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
    make("span", {}, make("span", { class: "word is-changed" }, "word"), " not in the model’s own translation"),
    make("span", {}, make("span", { class: "word is-pulled" }, "word"), " the memory overruled the model"),
    make("span", {}, "Choose a word to see why."),
  );
}
