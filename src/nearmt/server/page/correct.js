// Corrections: saved to the memory, then the text is translated again.

import { addUnits } from "./api.js";
import { make } from "./dom.js";
import { notify } from "./notices.js";
import { emit, report, sourceLanguage, targetLanguage } from "./session.js";
import { correctionId } from "./words.js";

const ORIGIN = "corrections";
const saved = new Map(); // corrections of this page view: store and source → target

const keyOf = (store, source) => `${store}\n${source}`;

export const wasCorrected = (store, row) => saved.get(keyOf(store, row.source)) === row.text;

export function openCorrection({ drawer, row, button, storeName }) {
  const close = () => {
    drawer.replaceChildren();
    button.focus();
  };
  const area = make("textarea", { class: "prose", rows: 2, lang: targetLanguage(), id: "correction", spellcheck: "true" });
  area.value = row.text;
  const save = make("button", { type: "submit", class: "primary" }, "Save to memory");
  const form = make(
    "form",
    {
      class: "correction",
      "aria-label": "Correct this translation",
      on: {
        submit: async (event) => {
          event.preventDefault();
          const target = area.value.trim();
          if (!target) {
            area.focus();
            return;
          }
          save.disabled = true;
          try {
            await saveCorrection(storeName, row.source, target);
          } catch (error) {
            save.disabled = false;
            report(error);
          }
        },
        keydown: (event) => {
          if (event.key === "Escape") close();
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
        },
      },
    },
    make("p", { class: "prose quoted", lang: sourceLanguage(), dir: "auto" }, row.source),
    make("label", { for: "correction", class: "eyebrow" }, "Your translation"),
    area,
    make(
      "div",
      { class: "card-foot" },
      make("p", { class: "hint" }, `Saved to the store “${storeName}” with the origin “${ORIGIN}”.`),
      make("button", { type: "button", class: "quiet", on: { click: close } }, "Cancel"),
      save,
    ),
  );
  drawer.replaceChildren(form);
  area.focus();
}

async function saveCorrection(store, source, target) {
  const unit = { source, target, unit_id: correctionId(source), origin: ORIGIN };
  const reply = await addUnits(store, [unit]);
  if (reply.too_long) throw new Error("The sentence is too long for the model and was not saved.");
  saved.set(keyOf(store, source), target);
  notify(
    reply.replaced
      ? "Your earlier correction was replaced, and the text was translated again."
      : reply.added
        ? "Saved to the memory, and the text was translated again."
        : "This translation is already in the memory.",
  );
  emit("corrected", source);
}
