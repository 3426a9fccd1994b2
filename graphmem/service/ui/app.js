// The frame of the page: who is signed in, whose memory is shown, which view, and the keyboard.

import { html, render, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf, nameUser, readAddress } from "./addresses.js";
import { failureOf, onRefusedKey, send, SERVICE_BACK } from "./api.js";
import { Chat } from "./chat.js";
import { dropDrafts } from "./drafts.js";
import { Graph } from "./graph.js";
import { number, reasonOf, t } from "./i18n.js";
import { registerKeys } from "./keyboard.js";
import { Keys } from "./keys.js";
import { Lifecycle } from "./lifecycle.js";
import { Memories } from "./memories.js";
import { Dialog, Icon, IconButton, Menu, ownName, RequestId, Toast } from "./parts.js";
import {
  currentKey, hasLetters, onPreference, setKey, setLetters, setShared, switchLanguage, switchTheme, takeKey,
} from "./preferences.js";
import { Search } from "./search.js";
import { SignIn, readCaller } from "./sign_in.js";
import { Lamp } from "./stores.js";
import { System } from "./system.js";
import { forgetKey, joinTabs, shareKey } from "./tabs.js";
import { Usage } from "./usage.js";

// By name in the address: the letter that opens a view after "g", and the roles of the keys that may see it. On phones a view may have a shorter name, or no
// place in the bar (`behind`: the views that have its link; the one that the caller sees is marked instead). `isApart`: a line stands before it in the rail.
const EVERYBODY = ["admin", "app", "user"];
const VIEWS = {
  memories: { icon: "list", letter: "m", view: Memories, roles: EVERYBODY },
  search: { icon: "find", letter: "s", view: Search, roles: EVERYBODY },
  graph: { icon: "graph", letter: "g", view: Graph, roles: EVERYBODY },
  chat: { icon: "chat", letter: "c", view: Chat, roles: EVERYBODY, short: "chat_short" },
  system: { icon: "bars", letter: "u", view: System, roles: ["admin"], short: "system_short", isApart: true },
  usage: { icon: "bars", letter: "u", view: Usage, roles: ["app", "user"], isApart: true },
  lifecycle: { icon: "leaf", letter: "l", view: Lifecycle, roles: EVERYBODY, behind: ["system", "usage"] },
  keys: { icon: "lock", view: Keys, roles: ["admin"], behind: ["system"] },
};
const MAX_USERS = 1000;
/**
 * Returns the address as {view, id, query}; its view is one of those that the caller may see.
 *
 * Another view begins at its top, but where the browser goes back or forward: it scrolls by itself then.
 */
function useAddress(views) {
  const current = () => {
    const address = readAddress(location.hash);
    return address.view in views ? address : { view: "memories", id: "", query: { user: address.query.user } };
  };
  const [now, setNow] = useState(current);
  const shown = useRef(now.view);
  useLayoutEffect(() => {
    if (shown.current !== now.view && history.state === null) scrollTo(0, 0);
    shown.current = now.view;
    history.replaceState({ isKnown: true }, "");
  }, [now]);
  useLayoutEffect(() => { // before the paint: a link may be followed at once
    const read = () => setNow(current());
    addEventListener("hashchange", read);
    return () => removeEventListener("hashchange", read);
  }, []);
  return now;
}

/** `counts` are figures beside the names of views; `isBar`: the bar of a phone, without the views that others lead to. */
function Nav({ views, now, isBar, counts = {}, ...rest }) {
  const shown = Object.entries(views).filter(([, { behind }]) => !(isBar && behind));
  const marked = (isBar && views[now].behind?.find((name) => name in views)) || now;
  const current = marked === now ? "page" : "true";
  return html`<nav aria-label=${t("views")} ...${rest}>${shown.map(([name, { icon, short, isApart }]) => html`${isApart && !isBar && html`<hr />`}
    <a key=${name} href=${addressOf(name)} title=${t(name)} aria-current=${name === marked ? current : null}>
      <${Icon} name=${icon} /><span>${t(isBar && short ? short : name)}</span>
      ${counts[name] != null && html`<span class="count num">${number(counts[name])}</span>`}</a>`)}</nav>`;
}

function Whose({ caller, user, onChoose }) {
  const [users, setUsers] = useState([]);
  const loadUsers = () => {
    if (caller.role !== "admin") return; // others may not list users; they type a name
    const query = { limit: MAX_USERS };
    send("GET", "/entities", { query }).then((found) => setUsers(found.filter((one) => one.type === "user")), () => {});
  };
  if (caller.role === "user") return html`<p class="whose"><small>${t("whose")}</small><b dir="auto">${ownName(caller) ?? t("you")}</b></p>`;
  const nobody = caller.role === "admin" ? t("everybody") : t("nobody");
  const name = user || nobody;
  const options = users.map((one) => ({ value: one.id, label: one.id, count: one.total_memories }));
  if (caller.role === "admin" && !caller.default_user) options.unshift({ value: "", label: t("everybody") });
  return html`<${Menu} class="whose" label=${t("whose")} name=${t("whose_choose", { name })} value=${user} options=${options} onChoose=${onChoose} onOpen=${loadUsers}
    typed=${(text) => t("user_typed", { name: text })}
    button=${() => html`<small>${t("whose")}</small> <b dir="auto">${name}</b><${Icon} name="down" />`} />`;
}

function Help({ onClose }) {
  const lines = {
    "/": "kb_filter", "j k": "kb_rows", Enter: "kb_open", Esc: "kb_close", e: "kb_edit", f: "kb_forget", "Ctrl/⌘ Enter": "kb_save",
    u: "kb_undo", Delete: "kb_delete", "g m": "kb_views", "g s": "search", "g g": "graph", "g c": "chat", "g u": "kb_usage", "g l": "lifecycle", "← ↑ ↓ →": "kb_graph",
    "+ - 0": "kb_graph_zoom", "?": "kb_help",
  };
  return html`<${Dialog} labelledby="help-title" onClose=${onClose}><div class="ask"><h2 id="help-title">${t("keyboard")}</h2>
    <dl class="shortcuts">${Object.entries(lines).map(([keys, key]) => html`<div key=${key}><dt><kbd>${keys}</kbd></dt><dd>${t(key)}</dd></div>`)}</dl>
    <label class="sure plain"><input type="checkbox" checked=${hasLetters()} onChange=${(event) => setLetters(event.target.checked)} />
      <span>${t("kb_letters")}</span></label></div>
    <div class="asks"><button type="button" class="btn" data-first onClick=${onClose}>${t("close")}</button></div><//>`;
}

/**
 * What views need of the frame: the caller, the user, messages, keys, and the last change, which `u` takes back.
 *
 * A change is {eventId, query, onUndone} for one of a memory, or {takeBack} with the function that takes another one back.
 */
function useFrame(caller, user) {
  const [toast, notify] = useState(null);
  const [counts, setCounts] = useState({});
  const last = useRef(null);
  const frame = useMemo(() => {
    // A text that is a function follows the language while it is shown.
    const say = (text, act, label) => notify({ text, act, label });
    const copy = (text) => navigator.clipboard?.writeText(text).then(() => say(() => t("copied")));
    const count = (view, n) => setCounts((now) => (now[view] === n ? now : { ...now, [view]: n }));
    const undo = async (change) => {
      if (last.current === change || (change.eventId && last.current?.eventId === change.eventId)) last.current = null;
      try {
        await (change.takeBack ?? undoEvent)(change);
        say(() => t("undone"));
      } catch (error) {
        failureOf(error);
        say(() => (error.status === 400 ? t("undo_refused") : html`${reasonOf(error)}<${RequestId} error=${error} />`));
      }
    };
    const changed = (change, text) => {
      last.current = change;
      say(text, () => undo(change), () => t("undo"));
    };
    const forgetChange = () => {
      last.current = null;
    };
    const undoLast = () => (last.current ? undo(last.current) : say(() => t("nothing_to_undo")));
    const seesAll = caller.role === "admin" && !user; // the memories of everybody
    return { caller, user: user || undefined, seesAll, notify: say, copy, undo, undoLast, changed, forgetChange, count, keys: registerKeys };
  }, [caller, user]);
  useEffect(() => void setCounts({}), [user]);
  return { frame, toast, counts, dropToast: () => notify(null) };
}

async function undoEvent({ eventId, query, onUndone }) {
  await send("POST", `/events/${encodeURIComponent(eventId)}/undo`, { query });
  await onUndone();
}

function Frame({ caller, isLocked, onSignOut }) {
  const [isHelping, setHelping] = useState(false);
  const views = Object.fromEntries(Object.entries(VIEWS).filter(([, { roles }]) => roles.includes(caller.role)));
  const { view: name, id, query } = useAddress(views);
  const last = useRef(""); // for a key that has to name a user, where an address names none
  const user = caller.role === "user" ? "" : query.user || caller.default_user || last.current;
  if (caller.role === "app") last.current = user;
  nameUser(user);
  const { frame, toast, counts, dropToast } = useFrame(caller, user);
  const choose = (chosen) => {
    location.hash = addressOf(name, "", { user: chosen });
  };
  useLayoutEffect(() => {
    const opening = Object.entries(views).filter(([, { letter }]) => letter).map(([view, { letter }]) => [`g ${letter}`, () => (location.hash = addressOf(view))]);
    return registerKeys({ u: frame.undoLast, "?": () => setHelping(true), ...Object.fromEntries(opening) });
  }, [frame]);
  useEffect(() => {
    document.title = `${t(name)} · graphmem`;
  });
  const needsUser = caller.role === "app" && !user;
  const { view } = views[name];
  return html`<div class="app" inert=${isLocked}>
    <header class="rail"><a class="mark" href=${addressOf("memories")} aria-label="graphmem"><svg viewBox="0 0 30 14" aria-hidden="true" fill="none">
        <path d="M7 7h16" stroke="currentColor" stroke-width="1.8" /><rect x=".9" y="3.4" width="8.2" height="7.2" rx="1.8" class="hole" stroke="currentColor" stroke-width="1.8" />
        <circle cx="15" cy="7" r="3" fill="currentColor" /><rect x="20" y="2.5" width="9.6" height="9" rx="2" fill="currentColor" /></svg><span>graphmem</span></a>
      <${Whose} caller=${caller} user=${user} onChoose=${choose} />
      <${Nav} class="nav" views=${views} now=${name} counts=${counts} />
      <div class="foot">${caller.role === "admin" && html`<${Lamp} />`}<${IconButton} icon="lang" label=${t("language")} onClick=${switchLanguage} />
        <${IconButton} icon="half" label=${t("theme")} onClick=${switchTheme} />
        ${currentKey() !== null && html`<${IconButton} icon="lock" label=${t("sign_out")} onClick=${onSignOut} />`}</div></header>
    <main id="main" tabindex="-1">${needsUser
      ? html`<section class="view"><div class="page"><h1 class="read">${t("user_first")}</h1><p class="soft">${t("user_first_do")}</p></div></section>`
      : html`<${view} key=${`${name} ${user}`} app=${frame} id=${id} query=${query} />`}</main>
    <${Nav} class="tabs" views=${views} now=${name} isBar />
    <${Toast} toast=${toast} onGone=${dropToast} />
    ${isHelping && html`<${Help} onClose=${() => setHelping(false)} />`}
  </div>`;
}

function App() {
  const [caller, setCaller] = useState(null);
  const [problem, setProblem] = useState(null); // null: no sign-in is shown; "": it is, without a problem; else as SignIn takes it
  const [, redraw] = useState(0);
  const former = useRef("");
  const isOpen = useRef(false);
  isOpen.current = caller !== null;
  const admit = (found) => {
    if (former.current && former.current !== identity(found)) forgetCaller();
    former.current = identity(found);
    setCaller(found);
    setProblem(null);
  };
  useEffect(() => onPreference(() => redraw((n) => n + 1)), []);
  useEffect(() => {
    onRefusedKey(() => setProblem(t("key_lost")));
    const enter = async () => {
      const key = takeKey();
      try {
        admit(await readCaller(key));
      } catch (error) {
        if (currentKey() !== key) return; // another tab gave one meanwhile
        if (error.status === 401 || error.status === 403) setKey(null);
        setProblem(key === null && error.status === 401 ? "" : { error: failureOf(error), key });
      }
    };
    addEventListener("hashchange", () => location.hash.startsWith("#key=") && enter());
    addEventListener(SERVICE_BACK, () => !isOpen.current && enter());
    enter();
    joinTabs({
      onKey: (key) => {
        setKey(key);
        setShared(true);
        enter();
      },
      onForget: leave,
    });
  }, []);
  const open = (key, found, isForTabs) => {
    setKey(key);
    if (isForTabs) shareKey();
    admit(found);
  };
  const leave = () => {
    setKey(null);
    forgetCaller();
    setCaller(null);
    setProblem("");
  };
  const signOut = () => {
    forgetKey();
    leave();
  };
  return html`<a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>${t("skip")}</a>
    ${caller && html`<${Frame} key=${identity(caller)} caller=${caller} isLocked=${problem !== null} onSignOut=${signOut} />`}
    ${problem !== null && html`<div class=${caller ? "over" : ""}><${SignIn} first=${problem} isOver=${caller !== null} onOpen=${open} /></div>`}`;
}

/** Forgets what belongs to one caller: texts that were typed, and the address with the chosen user. */
function forgetCaller() {
  dropDrafts();
  history.replaceState(null, "", location.pathname);
}

/** Whoever signs in again as the same caller finds the page as it was. */
function identity({ role, user_id: user, agent_id: agent }) {
  return JSON.stringify([role, user, agent]);
}

render(html`<${App} />`, document.getElementById("page"));
