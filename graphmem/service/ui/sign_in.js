// Asks for a key, at first and whenever the service refuses the one that was given.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { ApiError, failureOf, send } from "./api.js";
import { reasonOf, t } from "./i18n.js";
import { IconButton, Icon, RequestId, Thread } from "./parts.js";
import { keyIn, switchLanguage, switchTheme } from "./preferences.js";

// What a key of the service begins with, which characters it has, and how many.
const [BEGINNING, STRANGE, WHOLE] = ["gm_", /[^\w-]/u, 55];
// What no header can carry: a request with it would fail as if the service did not answer.
const UNSENDABLE = /[^\x20-\x7e\xa0-\xff]/;

/** Returns whose key this is, null for a request without one. Throws ApiError. */
export async function readCaller(key) {
  if (UNSENDABLE.test(key ?? "")) throw new ApiError(401, "");
  return send("GET", "/caller", { tried: key });
}

/** Returns the sentence about what is wrong, which may be one already, else {error, key}: a key that does not open the page, and the error that it met. */
function wordsOf(problem) {
  if (typeof problem === "string") return problem;
  const { error, key } = problem;
  if (error.status === 401) return faultOf(key);
  return error.status === 403 ? t("key_metrics") : reasonOf(error);
}

/** Returns what is wrong with a key that the service does not know, as far as its text tells. */
function faultOf(key) {
  if (UNSENDABLE.test(key) || key.startsWith(BEGINNING)) {
    const [character] = key.match(STRANGE) ?? [];
    if (character) return /\s/.test(character) ? t("key_blank") : t("key_odd", { character });
    const values = { n: key.length, whole: WHOLE };
    if (key.length !== WHOLE) return t(key.length < WHOLE ? "key_short" : "key_long", values);
    return t("key_unknown");
  }
  return t("key_other");
}

/**
 * `first` is what is wrong at first: a sentence, "" for none, or {error, key}; `isOver`: it stands above the page, which keeps what was typed. `onOpen` is called
 * with a key, whose it is, and whether other tabs may have it.
 */
export function SignIn({ first, isOver, onOpen }) {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState(first);
  const [isForTabs, setForTabs] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const field = useRef();
  useLayoutEffect(() => field.current.focus(), []);
  useEffect(() => setProblem(first), [first]);
  const open = async (event) => {
    event.preventDefault();
    const text = keyIn(key.trim());
    if (!text || isBusy) return field.current.focus();
    setBusy(true);
    try {
      const caller = await readCaller(text);
      return onOpen(text, caller, isForTabs);
    } catch (error) {
      setProblem({ error: failureOf(error), key: text });
      setBusy(false);
      return field.current.select();
    }
  };
  const role = isOver ? { role: "dialog", "aria-modal": "true" } : { role: "main", id: "main", tabindex: "-1" };
  return html`<section class="door" aria-labelledby="door-title" ...${role}><form onSubmit=${open}>
    <${Thread} /><h1 id="door-title">${t("door_title")}</h1><p class="lead">${t("door_lead")}</p>
    <label class="label" for="key">${t("key")}</label>
    <div class="go"><input class="field" id="key" ref=${field} type="password" autocomplete="off" spellcheck=${false}
      placeholder="gm_" value=${key} onInput=${(event) => setKey(event.target.value)}
      aria-invalid=${problem ? "true" : null} aria-describedby="key-hint" />
      <button class="btn primary" aria-busy=${isBusy ? "true" : null}>${isBusy && html`<${Icon} name="turn" />`}
        <span>${t(isBusy ? "opening" : "open")}</span></button></div>
    <p class=${problem ? "hint bad" : "hint"} id="key-hint" role="status">${wordsOf(problem) || t(isForTabs ? "door_hint_tabs" : "door_hint")}<${RequestId} error=${problem.error} /></p>
    <label class="sure plain"><input type="checkbox" checked=${isForTabs} onChange=${(event) => setForTabs(event.target.checked)} />
      <span>${t("door_tabs")}</span></label>
    <p class="foot"><span>${t("door_none")}</span>
      <${IconButton} icon="lang" label=${t("language")} onClick=${switchLanguage} />
      <${IconButton} icon="half" label=${t("theme")} onClick=${switchTheme} /></p>
  </form></section>`;
}
