// Texts that were typed and not saved, by what they are for: closing a panel or leaving a view does not lose them.

export const drafts = new Map();

/** Forgets all of them. */
export function dropDrafts() {
  drafts.clear();
}
