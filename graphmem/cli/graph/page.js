// The frame of a file that holds a graph: the view of the page at /ui/, alone.

import { html, render, useEffect, useMemo, useState } from "./vendor/htm-preact.js";
import { readAddress } from "./addresses.js";
import { Graph } from "./graph.js";
import { t } from "./i18n.js";
import { registerKeys } from "./keyboard.js";
import { IconButton } from "./parts.js";
import { onPreference, switchLanguage, switchTheme } from "./preferences.js";

const title = document.title;
document.title = `${title} · graphmem`;

function File() {
  const [, redraw] = useState(0);
  useEffect(() => {
    const again = () => redraw((n) => n + 1);
    addEventListener("hashchange", again);
    return onPreference(again);
  }, []);
  const app = useMemo(() => ({ keys: registerKeys }), []);
  const buttons = html`<${IconButton} icon="lang" label=${t("language")} onClick=${switchLanguage} />
    <${IconButton} icon="half" label=${t("theme")} onClick=${switchTheme} />`;
  const { id, query } = readAddress(location.hash);
  return html`<main id="main" tabindex="-1"><${Graph} app=${{ ...app, file: { title, buttons } }} id=${id} query=${query} /></main>`;
}

render(html`<${File} />`, document.getElementById("page"));
