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
};
// Those that end with the predicate of a relation, in quotes.
const WITH_PREDICATE = { "another value": "reason_another_of", "the contrary": "reason_contrary_of" };

/** Returns {key, predicate} of a reason; null if it is nobody's that we know, such as one that was imported. */
export function readReason(text) {
  if (Object.hasOwn(FIXED, text)) return { key: FIXED[text] };
  const [, beginning, , predicate] = text.match(/^(another value|the contrary) of (['"])(.+)\2$/) ?? [];
  return beginning ? { key: WITH_PREDICATE[beginning], predicate } : null;
}
