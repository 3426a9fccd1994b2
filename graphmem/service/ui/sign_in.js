// Asks for a key, at first and whenever the service refuses the one that was given.

import { html, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { failureOf, send } from "./api.js";
import { reasonOf, t } from "./i18n.js";
import { IconButton, Icon, RequestId, Thread } from "./parts.js";
import { keyIn, switchLanguage, switchTheme } from "./preferences.js";

/** Returns whose key this is. Throws ApiError. */
export function readCaller(key) {
  return send("GET", "/caller", { key });
}

/** Returns the sentence about a key that does not open the page; `problem` may be one already. */
function refusalOf(problem) {
  if (typeof problem === "string") return problem;
  if (problem.status === 401) return t("key_wrong");
  return problem.status === 403 ? t("key_metrics") : reasonOf(problem);
}

/** `first` is a sentence, "" for none, or the error of the key that was tried. `onOpen` is called with a key, whose it is, and whether other tabs may have it. */
export function SignIn({ first, onOpen }) {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState(first);
  const [isForTabs, setForTabs] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const field = useRef();
  useLayoutEffect(() => field.current.focus(), []);
  const open = async (event) => {
    event.preventDefault();
    const text = keyIn(key.trim());
    if (!text || isBusy) return field.current.focus();
    setBusy(true);
    try {
      const caller = await readCaller(text);
      return onOpen(text, caller, isForTabs);
    } catch (error) {
      setProblem(failureOf(error));
      setBusy(false);
      return field.current.select();
    }
  };
  return html`<section class="door"><form onSubmit=${open}>
    <${Thread} /><h1>${t("door_title")}</h1><p class="lead">${t("door_lead")}</p>
    <label class="label" for="key">${t("key")}</label>
    <div class="go"><input class="field" id="key" ref=${field} type="password" autocomplete="off" spellcheck=${false}
      placeholder="gm_" value=${key} onInput=${(event) => setKey(event.target.value)}
      aria-invalid=${problem ? "true" : null} aria-describedby="key-hint" />
      <button class="btn primary" aria-busy=${isBusy ? "true" : null}>${isBusy && html`<${Icon} name="turn" />`}
        <span>${t(isBusy ? "opening" : "open")}</span></button></div>
    <p class=${problem ? "hint bad" : "hint"} id="key-hint" role="status">${refusalOf(problem) || t(isForTabs ? "door_hint_tabs" : "door_hint")}<${RequestId} error=${problem} /></p>
    <label class="sure plain"><input type="checkbox" checked=${isForTabs} onChange=${(event) => setForTabs(event.target.checked)} />
      <span>${t("door_tabs")}</span></label>
    <footer><span>${t("door_none")}</span>
      <${IconButton} icon="lang" label=${t("language")} onClick=${switchLanguage} />
      <${IconButton} icon="half" label=${t("theme")} onClick=${switchTheme} /></footer>
  </form></section>`;
}
