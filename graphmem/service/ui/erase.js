// The dialog before a memory is erased: it names what goes, and asks twice.

import { html, useState } from "./vendor/htm-preact.js";
import { failureOf, memoryPath, send } from "./api.js";
import { reasonOf, t, written } from "./i18n.js";
import { Busy, Dialog, RequestId } from "./parts.js";

/** `onErased` is called with the ids that are gone; `onForget`, if the memory can be forgotten instead. */
export function Erase({ record, origin, app, onErased, onForget, onClose }) {
  const [isSure, setSure] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState(null);
  const messages = record.kind === "fact" ? origin.messages.length : 0;
  const gone = [
    [messages, "erase_messages"],
    [origin.events.length, "erase_changes"],
    [origin.mentions.length, "erase_links"],
  ].filter(([n]) => n > 0);
  const erase = async () => {
    setBusy(true);
    try {
      const receipt = await send("DELETE", memoryPath(record.id), { query: { user_id: app.user } });
      const others = receipt.deleted.length - 1;
      onClose();
      onErased(receipt.deleted);
      app.forgetChange();
      app.notify(() => (others > 0 ? t("erased_with", { n: others }) : t("erased")));
    } catch (error) {
      setFailure(failureOf(error));
      setBusy(false);
    }
  };
  return html`<${Dialog} labelledby="erase-title" onClose=${onClose}><div class="ask">
    <h2 id="erase-title">${t("erase_ask")}</h2>
    <blockquote><p class="read" ...${written(record.memory)}>${record.memory}</p></blockquote>
    <p class="soft">${t("erase_with")}</p>
    <ul class="gone">${gone.map(([n, key]) => html`<li key=${key}><b class="num">${n}</b><span>${t(key, { n })}</span></li>`)}
      ${record.kind !== "summary" && html`<li><b /><span>${t("erase_summaries")}</span></li>`}</ul>
    ${messages > 0 && origin.messages.map((one) => html`<p class="read faint" key=${one.memory_id} ...${written(one.content)}>${one.content}</p>`)}
    <label class="sure"><input type="checkbox" checked=${isSure} onChange=${(event) => setSure(event.target.checked)} />
      <span>${t("erase_sure")}</span></label>
    ${failure && html`<p class="hint bad" role="alert">${t("not_erased", { reason: reasonOf(failure) })}<${RequestId} error=${failure} /></p>`}</div>
    <div class="asks">${onForget && html`<button type="button" class="btn quiet instead" onClick=${() => (onClose(), onForget())}>${t("erase_instead")}</button>`}
      <button type="button" class="btn" data-first onClick=${onClose}>${t("erase_not")}</button>
      <${Busy} class="danger" busy=${isBusy} disabled=${!isSure || isBusy} title=${isSure ? null : t("erase_first")}
        label=${t("erase_do")} busyLabel=${t("erase_busy")} onClick=${erase} /></div><//>`;
}
