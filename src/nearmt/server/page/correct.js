// Correcting a sentence: what is saved here is in the memory before the next translation.

import { addUnits } from "./api.js";
import { make } from "./dom.js";
import { notify } from "./notices.js";
import { report, sourceLanguage, targetLanguage, tell } from "./session.js";
import { correctionId } from "./words.js";

const ORIGIN = "corrections";
const saved = new Map(); // of this visit: store and source → target

const place = (store, source) => `${store}\n${source}`;

export const wasCorrected = (store, row) => saved.get(place(store, row.source)) === row.text;

export function openCorrection({ drawer, row, button, storeName }) {
  const close = () => {
    drawer.replaceChildren();
    button.focus();
  };
  const area = make("textarea", { class: "prose", rows: 2, lang: targetLanguage(), id: "correction", spellcheck: "true" });
  area.value = row.text;
  const save = make("button", { type: "submit", class: "primary" }, "Save to the memory");
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
      make("p", { class: "hint" }, `Goes to the store “${storeName}” under the origin “${ORIGIN}”.`),
      make("button", { type: "button", class: "quiet", on: { click: close } }, "Cancel"),
      save,
    ),
  );
  drawer.replaceChildren(form);
  area.focus();
}

async function saveCorrection(store, source, target) {
  const unit = { source, target, unit_id: correctionId(source), origin: ORIGIN };
  const told = await addUnits(store, [unit]);
  if (told.too_long) throw new Error("The sentence is too long for the model, so it was not saved.");
  saved.set(place(store, source), target);
  notify(
    told.replaced
      ? "Your earlier correction was replaced. Translated again with it."
      : told.added
        ? "Saved to the memory. Translated again with it."
        : "The memory knows this translation already.",
  );
  tell("corrected", source);
}
