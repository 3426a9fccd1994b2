// What is shown while nothing is remembered: three ways to begin.

import { html } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { t } from "./i18n.js";
import { Icon, Thread } from "./parts.js";
import { currentKey } from "./preferences.js";

// Characters of the key that snippets show: its id, which is no secret.
const KEY_START = 11;

function snippets(user) {
  const [origin, key] = [location.origin, `${(currentKey() ?? "gm_").slice(0, KEY_START)}…`];
  const named = JSON.stringify(user || "ana");
  const body = JSON.stringify({ user_id: user || "ana", messages: "Clara works at the aquarium in Lisbon." });
  return {
    rest: `curl ${origin}/memories \\\n  -H 'X-API-Key: ${key}' \\\n  -H 'Content-Type: application/json' \\\n  -d '${body.replaceAll("'", "'\\''")}'`,
    mem0: `client = MemoryClient(\n    api_key="${key}",\n    host="${origin}",\n)\nclient.add("Ben moved to Porto.", user_id=${named})`,
    chat: `base URL: ${origin}/v1\nAPI key:  ${key}`,
  };
}

export function FirstDay({ app, onLook }) {
  const steps = Object.entries(snippets(app.user ?? app.caller.user_id));
  return html`<section class="view"><div class="first"><${Thread} /><h1>${t("first_title")}</h1>
    <p class="lead">${t("first_lead")}</p>
    <ol class="ways">${steps.map(([name, text], place) => html`<li key=${name}><span class="place num">${place + 1}</span>
      <div><h2>${t(`first_${name}`)}</h2><p>${t(`first_${name}_do`)}${t("between_sentences")}${t("first_key")}</p>
        <div class="snip"><pre tabindex="0">${text}</pre>
          <button type="button" class="btn small" aria-label=${`${t("copy")}: ${t(`first_${name}`)}`} onClick=${() => app.copy(text)}>
            <${Icon} name="copy" /><span>${t("copy")}</span></button></div></div></li>`)}</ol>
    <p class="wait"><i /><span>${t("first_wait")}</span>
      <button type="button" class="btn small" onClick=${onLook}>${t("first_look")}</button>
      <a class="btn primary small" href=${addressOf("memories", "new")}><${Icon} name="plus" /><span>${t("add")}</span></a></p>
  </div></section>`;
}
