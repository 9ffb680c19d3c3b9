// Small bar charts as SVG, with text alternatives.

import { make, makeSvg, percent } from "./dom.js";

const HEIGHT = 92;
const STEP = 40;

// Vertical bars: the probability of each k.
export function sizeChart(sizes, marked = null) {
  const width = Math.max(1, sizes.length) * STEP;
  const bars = sizes.map(({ k, probability }, number) => {
    const height = Math.max(probability > 0 ? 1.5 : 0, probability * HEIGHT);
    const x = number * STEP;
    return makeSvg(
      "g",
      { class: k === 0 ? "bar-own" : "bar-memory" },
      makeSvg("title", {}, `k = ${k}: ${percent(probability)}`),
      makeSvg("rect", { class: "bar-background", x: x + 6, y: 16, width: STEP - 12, height: HEIGHT, rx: 3 }),
      makeSvg("rect", { x: x + 6, y: 16 + HEIGHT - height, width: STEP - 12, height, rx: Math.min(3, height / 2) }),
      makeSvg("text", { x: x + STEP / 2, y: 16 + HEIGHT - height - 4, class: "bar-value" }, barLabel(probability)),
      makeSvg("text", { x: x + STEP / 2, y: HEIGHT + 31, class: k === marked ? "bar-k bar-marked" : "bar-k" }, k),
    );
  });
  const label = sizes.map(({ k, probability }) => `k ${k}: ${percent(probability)}`).join(", ");
  return makeSvg(
    "svg",
    { class: "chart", viewBox: `0 0 ${width} ${HEIGHT + 36}`, role: "img", "aria-label": label, width, height: HEIGHT + 36 },
    bars,
  );
}

const barLabel = (probability) => (probability < 0.005 ? "" : String(Math.round(100 * probability)));

// Horizontal bars with names.
export function barList(items, { marked = null, format = percent, most = 1 } = {}) {
  return make(
    "ul",
    { class: "bar-list" },
    items.map(({ name, value }) =>
      make(
        "li",
        { class: name === marked ? "is-marked" : null },
        make("span", { class: "bar-name" }, name),
        horizontalBar(most > 0 ? value / most : 0),
        make("span", { class: "number" }, format(value)),
      ),
    ),
  );
}

export function horizontalBar(share) {
  const width = Math.max(0, Math.min(1, share)) * 100;
  return makeSvg(
    "svg",
    { class: "horizontal-bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    makeSvg("rect", { class: "bar-background", width: 100, height: 8 }),
    makeSvg("rect", { class: "bar-fill", width, height: 8 }),
  );
}
