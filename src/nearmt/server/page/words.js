// Splits texts into words, compares the words of two translations, and finds the tokens of a word.

// Positions count Unicode code points, as on the server; JavaScript strings count UTF-16 units.
export const characters = (text) => Array.from(text);

const LOOSE = /[\p{L}\p{M}\p{N}]+(?:['’-][\p{L}\p{N}]+)*|[^\s]/gu;

// The words and punctuation marks of a text with their positions; only white space lies between them.
export function splitWords(text, language) {
  const pieces =
    typeof Intl.Segmenter === "function"
      ? Array.from(new Intl.Segmenter(language || undefined, { granularity: "word" }).segment(text), (piece) => ({
          text: piece.segment,
          unit: piece.index,
        }))
      : Array.from(text.matchAll(LOOSE), (match) => ({ text: match[0], unit: match.index }));
  const words = [];
  let unit = 0;
  let at = 0;
  for (const piece of pieces) {
    at += characters(text.slice(unit, piece.unit)).length;
    unit = piece.unit;
    if (piece.text.trim()) words.push({ text: piece.text, start: at, end: at + characters(piece.text).length });
  }
  return words;
}

// For each word of both lists, whether it is missing in the other (longest common subsequence).
export function differences(one, other) {
  const table = Array.from({ length: one.length + 1 }, () => new Uint32Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i -= 1) {
    for (let j = other.length - 1; j >= 0; j -= 1) {
      table[i][j] =
        one[i].text === other[j].text ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const ofOne = one.map(() => true);
  const ofOther = other.map(() => true);
  for (let i = 0, j = 0; i < one.length && j < other.length; ) {
    if (one[i].text === other[j].text) {
      ofOne[i] = ofOther[j] = false;
      i += 1;
      j += 1;
    } else if (table[i + 1][j] >= table[i][j + 1]) i += 1;
    else j += 1;
  }
  return [ofOne, ofOther];
}

export const tokensOf = (tokens, start, end) =>
  tokens.filter((token) => token.start < end && token.end > start && token.end > token.start);

// Whether the memory made the model choose this token over its own first choice.
export const overrulesModel = (token) =>
  !token.is_models_first_choice && token.nmt_share < 1 && token.probability > token.nmt_probability;

// A token for display: SentencePiece writes the space before a word as ▁.
export const shownToken = (token) => token.replaceAll("▁", " ").trim() || "␣";

// A translation as rows, one per sentence.
export function rows(translation, language) {
  const text = characters(translation.text);
  return translation.sentences.map((sentence) => {
    const shown = text.slice(sentence.start, sentence.end).join("");
    return { source: sentence.source, start: sentence.start, text: shown, words: splitWords(shown, language) };
  });
}

// A hash of the source, so that a second correction of the same source replaces the first.
export function correctionId(source) {
  let one = 0xdeadbeef;
  let other = 0x41c6ce57;
  for (const character of source.trim().replace(/\s+/g, " ")) {
    const code = character.codePointAt(0);
    one = Math.imul(one ^ code, 2654435761);
    other = Math.imul(other ^ code, 1597334677);
  }
  one = Math.imul(one ^ (one >>> 16), 2246822507) ^ Math.imul(other ^ (other >>> 13), 3266489909);
  other = Math.imul(other ^ (other >>> 16), 2246822507) ^ Math.imul(one ^ (one >>> 13), 3266489909);
  const hex = (number) => (number >>> 0).toString(16).padStart(8, "0");
  return `page-${hex(one)}${hex(other)}`;
}
