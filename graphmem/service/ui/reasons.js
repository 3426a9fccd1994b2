// The reasons of changes, which the service writes in English, as keys of words.

// Sentences that are always the same.
const FIXED = {
  "another value": "reason_another",
  "the contrary": "reason_contrary",
  completed: "reason_completed",
  denied: "reason_denied",
  "no longer so": "reason_over",
  "said again in another scope": "reason_again",
  "a run that it was said in was deleted": "reason_run",
  "imported with restore=True": "reason_imported",
  asked: "reason_asked",
  changed: "reason_changed",
  "said again": "reason_said",
  "over capacity": "reason_capacity",
  "what stood for it was erased with another memory": "reason_words_erased",
  "refined by another fact": "reason_refined",
  "forgotten for longer than purge_after_days": "reason_long_ago",
};
// Those that end with the predicate of a relation, in quotes.
const WITH_PREDICATE = { "another value": "reason_another_of", "the contrary": "reason_contrary_of" };
// A fact was stored after the one that was said later.
const SAID_EARLIER = /^said earlier: /;
// Those with numbers, or with the id of the memory that stands for another one.
const WITH_VALUE = [
  [/^retention below ([\d.]+)$/, (least) => ({ key: "reason_faded", least: Number(least) })],
  [/^importance ([\d.]+)$/, (importance) => ({ key: "reason_important", importance: Number(importance) })],
  [/^found (\d+) times$/, (n) => ({ key: "reason_found", n: Number(n) })],
  [/^says what (\d+) others say$/, (n) => ({ key: "reason_says_others", n: Number(n) })],
  [/^made of (\d+) memories$/, (n) => ({ key: "reason_made_of", n: Number(n) })],
  [/^one of (\d+) memories$/, (n) => ({ key: "reason_one_of", n: Number(n) })],
  [/^merged into ([\w-]+)$/, (id) => ({ key: "reason_merged", id })],
  [/^confidence ([\d.]+) against ([\d.]+)$/, (sure, unsure) => ({ key: "reason_surer", sure: Number(sure), unsure: Number(unsure) })],
];

/** Returns {key} of a reason with the values in it; null if it is nobody's that we know, such as one that was imported. */
export function readReason(written) {
  const text = written.replace(SAID_EARLIER, "");
  if (Object.hasOwn(FIXED, text)) return { key: FIXED[text] };
  for (const [form, read] of WITH_VALUE) {
    const [whole, ...values] = text.match(form) ?? [];
    if (whole) return read(...values);
  }
  const [, beginning, , predicate] = text.match(/^(another value|the contrary) of (['"])(.+)\2$/) ?? [];
  return beginning ? { key: WITH_PREDICATE[beginning], predicate } : null;
}
