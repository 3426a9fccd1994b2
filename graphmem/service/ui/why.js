// Why a hit was found, in words.

import { countSteps } from "./chain.js";
import { list, ordinal, t } from "./i18n.js";
import { splitAtWords } from "./marks.js";

// By the names of `explain.arms`, in the order of the sentence; those without a rank are said without it.
const REASONS = ["dense", "keyword", "tokens", "characters", "reply", "named", "speaker", "date"];
// Left out where words are shared.
const FURTHER = new Set(["tokens", "characters"]);
// Beside a path only the best of an arm are named.
const BEST_RANK = 3;

function wordsOf(text, asked) {
  const found = splitAtWords(text, asked).filter((_, place) => place % 2);
  return [...new Map(found.map((word) => [word.toLowerCase(), word])).values()];
}

function reasonOf(arm, { rank }, text, asked) {
  const words = arm === "keyword" ? wordsOf(text, asked) : [];
  if (!words.length) return t(`why_${arm}`, { rank: ordinal(rank) });
  return t("why_words", { n: words.join(" ").split(" ").length, words: list(words.map((word) => t("why_quoted", { word }))), rank: ordinal(rank) });
}

function reasonsOf({ memory, explain: { arms } }, asked, maxRank) {
  const isSaid = (arm) => arm in arms && arms[arm].rank <= maxRank && !(FURTHER.has(arm) && "keyword" in arms);
  const named = REASONS.filter(isSaid);
  const text = named.map((arm) => reasonOf(arm, arms[arm], memory, asked)).join(t("why_comma"));
  return text && text[0].toUpperCase() + text.slice(1);
}

/** Returns the sentence about the path to a hit, "" without one. */
function wayOf({ explain: { path } }, hits) {
  const { memories, names } = countSteps(path);
  if (path[0].type === "entity") return t(names ? "why_leads" : "why_question", { name: path[0].name, n: names });
  if (memories < 2) return "";
  const start = hits.findIndex((one) => one.id === path[0].id);
  const from = start < 0 ? t("why_found") : t("why_hit", { n: start + 1 });
  if (names) return t(memories === 2 ? "why_shares" : "why_from", { from, n: names });
  const isLater = path[0].at <= path.at(-1).at;
  if (memories === 2) return t(isLater ? "why_follows" : "why_precedes", { from });
  return t(isLater ? "why_later" : "why_earlier", { from, n: memories - 1 });
}

/** Returns why a hit was found. `place` counts from 0; `asked` are the words of the question. */
export function whyOf(hit, place, hits, asked) {
  const way = wayOf(hit, hits);
  if (!way) return reasonsOf(hit, asked, Infinity) || t("why_beside");
  const reasons = reasonsOf(hit, asked, BEST_RANK);
  const likeness = hit.explain.arms.dense?.rank;
  const isFurther = countSteps(hit.explain.path).names > 0 && likeness > place + 1;
  return [way, reasons && t("why_sentence", { text: reasons }), isFurther && t("why_likeness", { n: likeness })]
    .filter(Boolean).join(t("why_space"));
}
