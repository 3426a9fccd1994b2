// Texts that were typed and not saved, by what they are for: closing a panel or leaving a view does not lose them, and the browser asks before the page
// itself is left.

export const drafts = new Map();

/** Forgets all of them. */
export function dropDrafts() {
  drafts.clear();
}

addEventListener("beforeunload", (event) => {
  if (drafts.size) event.preventDefault();
});
