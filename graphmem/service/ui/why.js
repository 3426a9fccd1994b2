// Why a hit was found, in words.

import { NEXT_MESSAGE, countSteps } from "./chain.js";
import { list, ordinal, t } from "./i18n.js";
import { splitAtWords } from "./marks.js";

// By the names of `explain.arms`, in the order of the sentence; those without a rank are said without it.
const REASONS = ["dense", "keyword", "tokens", "characters", "reply", "named", "speaker", "date"];
// Left out where words are shared.
const FURTHER = new Set(["tokens", "characters"]);
// The features of `explain.relevance` that differ between the hits of a search, by what they are about.
const FEATURES = {
  meaning: ["similarity", "similarity_high", "similarity_above", "multilingual", "multilingual_high", "multilingual_above",
    "multilingual_unread", "multilingual_above_unread", "meaning", "topic", "topic_above", "standing_for_advice"],
  words: ["match", "match_unread", "match_beside", "overlap", "overlap_share", "reply_overlap"],
  about: ["first_person_both", "about_another", "about_asker", "named", "not_named", "subject", "subject_clash", "another_number"],
  speaker: ["speaker_asked", "assistant", "assistant_asked"],
  answer: ["answer_type", "attribute_told", "attribute_missing", "attribute_odds"],
  time: ["date", "date_and_words"],
  question: ["question_share"],
};
// The least sum of log odds of features that is worth a word.
const MIN_SHARE = 0.3;
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

/** Returns the sentence about the steps from a memory on to a hit, "" without any. */
function stepsOf({ explain: { path } }, hits) {
  const { memories, names } = countSteps(path);
  if (memories < 2) return "";
  const first = path.findIndex((step) => step.type === "memory");
  const start = hits.findIndex((one) => one.id === path[first].id);
  const from = start < 0 ? t("why_found") : t("why_hit", { n: start + 1 });
  if (names) return t(memories === 2 ? "why_shares" : "why_from", { from, n: names });
  const isLater = path[first + 1].predicate === NEXT_MESSAGE;
  if (memories === 2) return t(isLater ? "why_follows" : "why_precedes", { from });
  return t(isLater ? "why_later" : "why_earlier", { from, n: memories - 1 });
}

/** Returns the sentences about the path to a hit, "" without one. */
function wayOf(hit, hits) {
  const [{ type, name }] = hit.explain.path;
  if (type !== "entity") return stepsOf(hit, hits);
  const { names } = countSteps(hit.explain.path);
  if (names) return t("why_leads", { name, n: names });
  return [t("why_question", { name }), stepsOf(hit, hits)].filter(Boolean).join(t("why_space"));
}

/** Returns why a hit was found. `place` counts from 0; `asked` are the words of the question. */
export function whyOf(hit, place, hits, asked) {
  const way = wayOf(hit, hits);
  const reasons = reasonsOf(hit, asked, way ? BEST_RANK : Infinity);
  if (!way && !reasons) return t("why_beside");
  const likeness = hit.explain.arms.dense?.rank;
  const isFurther = countSteps(hit.explain.path).names > 0 && likeness > place + 1;
  return [way, reasons && t("why_sentence", { text: reasons }), isFurther && t("why_likeness", { n: likeness })]
    .filter(Boolean).join(t("why_space"));
}

/** Returns what speaks for the relevance of a hit and against it, "" if nothing does much. */
export function relevanceOf({ explain: { relevance } }) {
  const shareOf = (names) => names.reduce((sum, name) => sum + (relevance[name] ?? 0), 0);
  const shares = Object.entries(FEATURES).map(([about, names]) => ({ about, share: shareOf(names) }));
  const sentence = (key, found) => found.length > 0 && t(key, { parts: list(found.map(({ about }) => t(`relevance_${about}`))) });
  const pro = shares.filter(({ share }) => share >= MIN_SHARE).sort((a, b) => b.share - a.share);
  const contra = shares.filter(({ share }) => share <= -MIN_SHARE).sort((a, b) => a.share - b.share);
  return [sentence("relevance_for", pro), sentence("relevance_against", contra)].filter(Boolean).join(t("why_space"));
}
