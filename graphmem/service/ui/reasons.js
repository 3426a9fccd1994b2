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
};
// Those that end with the predicate of a relation, in quotes.
const WITH_PREDICATE = { "another value": "reason_another_of", "the contrary": "reason_contrary_of" };
// Those of the lifecycle with a number, or with the id of the memory that stands for another one.
const WITH_VALUE = [
  [/^retention below ([\d.]+)$/, (least) => ({ key: "reason_faded", least: Number(least) })],
  [/^importance ([\d.]+)$/, (importance) => ({ key: "reason_important", importance: Number(importance) })],
  [/^found (\d+) times$/, (n) => ({ key: "reason_found", n: Number(n) })],
  [/^says what (\d+) others say$/, (n) => ({ key: "reason_says_others", n: Number(n) })],
  [/^made of (\d+) memories$/, (n) => ({ key: "reason_made_of", n: Number(n) })],
  [/^one of (\d+) memories$/, (n) => ({ key: "reason_one_of", n: Number(n) })],
  [/^merged into ([\w-]+)$/, (id) => ({ key: "reason_merged", id })],
];

/** Returns {key} of a reason with the values in it; null if it is nobody's that we know, such as one that was imported. */
export function readReason(text) {
  if (Object.hasOwn(FIXED, text)) return { key: FIXED[text] };
  for (const [form, read] of WITH_VALUE) {
    const [whole, value] = text.match(form) ?? [];
    if (whole) return read(value);
  }
  const [, beginning, , predicate] = text.match(/^(another value|the contrary) of (['"])(.+)\2$/) ?? [];
  return beginning ? { key: WITH_PREDICATE[beginning], predicate } : null;
}
