// The field in which the words of a memory are written, for a new one and for a change.

import { html, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { failureOf } from "./api.js";
import { drafts } from "./drafts.js";
import { reasonOf, t, written } from "./i18n.js";
import { Busy, RequestId } from "./parts.js";

/** Tells whether a text was typed and not saved. */
export function hasDraft(name) {
  return drafts.has(name);
}

/**
 * A field with its buttons. `name` is that of its draft, `text` what it begins with if there is none.
 *
 * `onSave(text)` saves, and resolves to what `onSaved` is called with; to null if the text is to stay in the field. `onLeave` closes the field:
 * Esc keeps the draft, the button `leaveLabel` does not. With `needsWords` a text of blanks is not saved.
 */
export function Editor({ name, text, leaveLabel, needsWords = false, onSave, onSaved, onLeave }) {
  const [draft, setDraft] = useState(drafts.get(name) ?? text);
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const field = useRef();
  useLayoutEffect(() => field.current.focus(), []);
  const type = (value) => {
    setDraft(value);
    if (value === text) drafts.delete(name);
    else drafts.set(name, value);
  };
  const leave = () => {
    drafts.delete(name);
    onLeave();
  };
  const isMissing = needsWords && !draft.trim();
  const save = async () => {
    if (isBusy || isMissing) return;
    if (draft === text) return leave();
    setBusy(true);
    setError(null);
    try {
      const saved = await onSave(draft);
      if (saved !== null) {
        drafts.delete(name);
        return onSaved(saved);
      }
    } catch (problem) {
      setError(failureOf(problem));
    }
    setBusy(false);
    field.current?.focus();
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    else if (event.key === "Escape") onLeave(); // the draft stays
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div onKeyDown=${onKeyDown}>
    <textarea class="field read" rows="5" ref=${field} aria-label=${t("words")} ...${written(draft)} value=${draft}
      aria-invalid=${error ? "true" : null} aria-describedby=${error ? "edit-problem" : null}
      onInput=${(event) => type(event.target.value)} />
    ${error && html`<p class="hint bad" id="edit-problem" role="alert">${t("not_saved", { reason: reasonOf(error) })}<${RequestId} error=${error} /></p>`}
    <div class="acts"><${Busy} class="primary" busy=${isBusy} disabled=${isBusy || isMissing} title=${isMissing ? t("words_first") : null}
        label=${t("save")} busyLabel=${t("saving")} onClick=${save} />
      <button type="button" class="btn quiet" onClick=${leave}>${leaveLabel}</button></div></div>`;
}
