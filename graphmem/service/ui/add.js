// The panel of a new memory.

import { html, useLayoutEffect, useRef } from "./vendor/htm-preact.js";
import { send } from "./api.js";
import { Editor } from "./editor.js";
import { t } from "./i18n.js";
import { IconButton } from "./parts.js";

const KEPT = new Set(["ADD", "UPDATE", "DELETE"]);

/** Returns what the service did with a text, as sentences. */
function sayAdded({ results, pending = [] }) {
  const count = (event) => results.filter((one) => one.event === event).length;
  const facts = results.filter((one) => one.event === "ADD" && one.kind === "fact").length;
  const sentences = [
    facts && t("added_facts", { n: facts }),
    count("UPDATE") && t("added_changes", { n: count("UPDATE") }),
    count("DELETE") && t("added_retired", { n: count("DELETE") }),
  ].filter(Boolean);
  if (sentences.length) return sentences.join(t("between_sentences"));
  if (pending.includes("facts")) return t("added_later");
  if (!results.length) return t("added_words");
  return t(count("ADD") ? "added" : "added_known");
}

/** Stands in place of the field while memories of all users are shown: a new one belongs to one of them. */
function NobodyChosen() {
  const sentence = useRef();
  useLayoutEffect(() => sentence.current.focus(), []);
  return html`<p class="read" tabindex="-1" ref=${sentence}>${t("add_whose")}</p><p class="soft">${t("add_whose_do")}</p>`;
}

/** `onAdded(id)` is called with the memory to open, undefined if there is none yet, and whether it is still being linked. */
export function Add({ app, onAdded, onClose }) {
  useLayoutEffect(() => app.keys({ Escape: onClose }));
  const onSave = (text) => send("POST", "/memories", { body: { user_id: app.user, messages: text } });
  const onSaved = (added) => {
    const { results, pending = [], sources = [] } = added;
    const first = results.find((one) => KEPT.has(one.event)) ?? results[0];
    app.forgetChange();
    onAdded(first?.id ?? (pending.includes("facts") ? undefined : sources[0]), pending.length > 0);
    app.notify(() => sayAdded(added));
  };
  return html`<aside class="panel" aria-label=${t("add_title")}>
    <header><nav><${IconButton} icon="x" label=${t("close_panel")} onClick=${onClose} /></nav></header>
    <div class="leaf"><h2 class="fresh">${t("add_title")}</h2>
      ${!app.seesAll ? html`<${Editor} name=${`new ${app.user ?? ""}`} text="" leaveLabel=${t("add_not")} needsWords
          onSave=${onSave} onSaved=${onSaved} onLeave=${onClose} />
        <p class="hint">${t("add_hint", { name: app.user ?? app.caller.user_id ?? t("you") })}</p>` : html`<${NobodyChosen} />`}
    </div></aside>`;
}
