// Parts that several views use.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { SERVICE_BACK } from "./api.js";
import { day, decimal, moment, nodes, number, t, time, typeName, utc, written } from "./i18n.js";
import { readReason } from "./reasons.js";

// Milliseconds: loading shows nothing before, says so after, and a toast stays as long.
const BONES_AFTER = 150;
const SENTENCE_AFTER = 2000;
const TOAST_STAYS = 8000;

export function Icon({ name, label }) {
  return label
    ? html`<svg class="ico" role="img" aria-label=${label}><use href=${`#i-${name}`} /></svg>`
    : html`<svg class="ico" aria-hidden="true"><use href=${`#i-${name}`} /></svg>`;
}

/** A button with an icon alone, whose label is read aloud and shown on hover. */
export function IconButton({ icon, label, ...rest }) {
  return html`<button type="button" class="btn quiet icon" aria-label=${label} title=${label} ...${rest}>
    <${Icon} name=${icon} />
  </button>`;
}

/** A button that works: while `busy` its icon turns, and its label says so. */
export function Busy({ busy, label, busyLabel, icon, class: classes = "", ...rest }) {
  return html`<button type="button" class=${`btn ${classes}`} aria-busy=${busy ? "true" : null} disabled=${busy} ...${rest}>
    ${(busy || icon) && html`<${Icon} name=${busy ? "turn" : icon} />`}<span>${busy ? busyLabel : label}</span>
  </button>`;
}

/** Tells whether the focus is nowhere, or on a button that was disabled when it was pressed. */
export function isFocusLost() {
  const focused = document.activeElement;
  return !focused || focused === document.body || focused.disabled;
}

const FORMATS = { moment, day, time };

/** A time in local form (`as`: moment, day or time), with the time in UTC as its title. */
export function Time({ at, as = "moment", ...rest }) {
  return html`<time datetime=${at} title=${utc(at)} ...${rest}>${FORMATS[as](at)}</time>`;
}

/** Returns who said a memory, "" if that is not known. */
export function speakerOf(record) {
  return record.actor_id ?? record.name ?? { assistant: t("assistant"), user: record.user_id }[record.role] ?? "";
}

/** Who said a memory, in a column: a long name is cut there and shown on hover. */
export function Who({ record }) {
  const who = speakerOf(record);
  return html`<span class="who" title=${who} ...${written(who)}>${who}</span>`;
}

/** Returns the name of the user of a key, with that of its agent if it has one; undefined or null if it is for no user. */
export function ownName({ user_id: name, agent_id: agent }) {
  return agent ? t("agent_with", { agent, name }) : name;
}

/** Returns the address of the graph around a name; `user` is whose graph it is, by default that of who is shown. */
export function graphAddress(name, user) {
  return addressOf("graph", "", { around: name, user });
}

/** Returns whose a memory is: a user, else an agent, else a run. */
export function ownerOf({ user_id: user, agent_id: agent, run_id: run }) {
  return user ?? agent ?? run;
}

/** Whose a memory is, in words. */
export function Owner({ record }) {
  const name = ownerOf(record);
  return nodes("whose_is", { name: html`<bdi ...${written(name)}>${name}</bdi>` });
}

/** A name with the shape and the colour of its type, a link to `href` or to the graph around it. */
export function Chip({ name, type, href = graphAddress(name) }) {
  const style = type.toLowerCase();
  return html`<a class=${`chip ${style}`} href=${href} title=${typeName(type)}>
    <svg class=${`t ${style}`} role="img" aria-label=${typeName(type)}><use href=${`#t-${style}`} /></svg>
    <span ...${written(name)}>${name}</span></a>`;
}

/** Why a memory was changed, in words of the page where the service's are known. */
export function Reason({ text, class: classes = "faint" }) {
  const known = readReason(text);
  if (!known) return html`<p class=${classes} ...${written(text)}>${text}</p>`;
  const { key, n, least, importance, sure, unsure, predicate, id } = known;
  const values = {
    n, least: least && number(least), importance: importance && number(importance), sure: sure && decimal(sure),
    unsure: sure && decimal(unsure), predicate: html`<bdi lang="en">${predicate}</bdi>`,
    it: html`<a href=${addressOf("memories", id)}>${t("like_memory")}</a>`,
  };
  return html`<p class=${classes}>${nodes(key, values)}</p>`;
}

/** The links at the top of a view to those that have no place in the bar at the bottom of a phone. */
export function Elsewhere({ names }) {
  return html`<nav class="elsewhere" aria-label=${t("elsewhere")}>${names.map((name) => html`<a class="btn" key=${name} href=${addressOf(name)}>${t(name)}</a>`)}</nav>`;
}

export function Thread() {
  return html`<svg class="thread" viewBox="0 0 210 26" aria-hidden="true">
    <path class="ln person" d="M16 13h84" /><path class="ln organization" d="M110 13h84" />
    <rect class="sl" x="1" y="7" width="17" height="12" rx="2.5" /><rect class="sl" x="96" y="7" width="17" height="12" rx="2.5" />
    <rect class="sl end" x="191" y="6" width="18" height="14" rx="2.5" /><circle class="nd person" cx="57" cy="13" r="6" />
    <path class="nd organization" d="M159 13l-3.5 6h-7l-3.5-6 3.5-6h7z" />
  </svg>`;
}

/** What the service's log calls a failed request, with a button that copies it; nothing if no answer came. */
export function RequestId({ error }) {
  const [copied, setCopied] = useState("");
  if (!error?.requestId) return null;
  const id = error.requestId;
  const copy = () => navigator.clipboard?.writeText(id).then(() => setCopied(id));
  return html` <span class="request">${t("request_id")} <code>${id}</code><${IconButton} icon=${copied === id ? "check" : "copy"}
    label=${t(copied === id ? "request_id_copied" : "request_id_copy")} onClick=${copy} /></span>`;
}

/** A notice about a failed request, `error`, which is made again on a click, and when the service answers again. */
export function Failed({ children, error, onRetry }) {
  useEffect(() => {
    if (!onRetry) return undefined;
    const retry = () => onRetry();
    addEventListener(SERVICE_BACK, retry);
    return () => removeEventListener(SERVICE_BACK, retry);
  });
  return html`<div class="say bad" role="alert"><${Icon} name="warn" /><span>${children}<${RequestId} error=${error} /></span>
    ${onRetry && html`<button type="button" class="btn small" onClick=${onRetry}>${t("try_again")}</button>`}</div>`;
}

function useAfter(milliseconds) {
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setOver(true), milliseconds);
    return () => clearTimeout(timer);
  }, []);
  return isOver;
}

/** The places of rows that are being loaded. */
export function Bones({ rows }) {
  const [isShown, isLong] = [useAfter(BONES_AFTER), useAfter(SENTENCE_AFTER)];
  if (!isShown) return null;
  return html`<div aria-busy="true">
    ${isLong && html`<p class="soft" role="status">${t("still_loading")}</p>`}
    ${Array.from({ length: rows }, (_, place) => html`<div class="row" key=${place} aria-hidden="true">
      <i class="bone w9" /><i class=${`bone ${place % 2 ? "w6" : "w9"}`} /><i class="bone w3" />
    </div>`)}
  </div>`;
}

/** The choice whether memories that are no longer true are shown: `value` is one of `options`, "now" (they are not), "past" (only they) or "both". */
export function TruthPick({ value, options = ["now", "both"], onChoose }) {
  return html`<${Menu} class=${value === "now" ? "pick" : "pick on"} label=${t("truth")} value=${value} onChoose=${onChoose}
    options=${options.map((one) => ({ value: one, label: t(`truth_${one}`) }))}
    button=${() => html`<${Choice} label=${t("truth")}>${t(`truth_${value}`)}<//>`} />`;
}

const said = (text) => (typeof text === "function" ? text() : text);

/** One message at the bottom, with a button for its action if it has one; gone after a while. */
export function Toast({ toast, onGone }) {
  const [isHeld, hold] = useState(false);
  useEffect(() => {
    if (!toast || isHeld) return undefined;
    const timer = setTimeout(onGone, TOAST_STAYS);
    return () => clearTimeout(timer);
  }, [toast, isHeld]);
  const act = () => {
    onGone();
    toast.act();
  };
  return html`<div class="toasts" role="status" onMouseEnter=${() => hold(true)} onMouseLeave=${() => hold(false)}
    onFocusIn=${() => hold(true)} onFocusOut=${() => hold(false)}>
    ${toast && html`<p class="toast"><span>${said(toast.text)}</span>
      ${toast.act && html`<button type="button" class="btn" onClick=${act}>${said(toast.label)}</button>`}
      <button type="button" class="btn icon" aria-label=${t("close")} onClick=${onGone}><${Icon} name="x" /></button></p>`}
  </div>`;
}

/** A modal dialog, which begins at its element with `data-first`; Esc closes it. However it is closed, the focus goes back. */
export function Dialog({ labelledby, onClose, children }) {
  const [dialog, closing] = [useRef(), useRef()];
  closing.current = onClose;
  useLayoutEffect(() => {
    const [before, shown] = [document.activeElement, dialog.current];
    const onClosed = () => closing.current();
    shown.addEventListener("close", onClosed);
    shown.showModal();
    shown.querySelector("[data-first]").focus();
    return () => {
      shown.removeEventListener("close", onClosed);
      shown.close(); // nothing beside an open dialog takes the focus
      if (before?.isConnected) before.focus();
    };
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby=${labelledby}>${children}</dialog>`;
}

/** What the button of a menu shows of a choice; what the choice is about is read aloud before it. */
export function Choice({ label, children }) {
  return html`<span><span class="sr">${t("named", { label })}</span>${children}</span><${Icon} name="down" />`;
}

/**
 * A button that opens a list of options ({value, label, count}).
 *
 * `button(isOpen)` returns what the button shows; its name is that, or `name`. `label` names the list. `onOpen` is called when the list opens. Typed text filters the options; with `typed`, a function, it is an
 * option of its own under that label.
 */
export function Menu({ class: classes, label, name, button, options, value, onChoose, onOpen, typed }) {
  const [isOpen, setOpen] = useState(false);
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const root = useRef();
  const trigger = useRef();
  const wanted = text.trim();
  const matching = options.filter((one) => one.label.toLowerCase().includes(wanted.toLowerCase()));
  const shown = typed && wanted && !options.some((one) => one.value === wanted)
    ? [...matching, { value: wanted, label: typed(wanted) }] : matching;
  useLayoutEffect(() => {
    if (isOpen) root.current.querySelector("input").focus();
  }, [isOpen]);
  const open = () => {
    setText("");
    setActive(Math.max(0, options.findIndex((one) => one.value === value)));
    setOpen(true);
    onOpen?.();
  };
  const close = () => {
    setOpen(false);
    trigger.current.focus();
  };
  const choose = (option) => {
    if (!option) return;
    close();
    onChoose(option.value);
  };
  const onKeyDown = (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps) setActive((active + steps[event.key] + shown.length) % Math.max(shown.length, 1));
    else if (event.key === "Enter") choose(shown[active]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const id = `menu-${label.replace(/\W+/g, "-")}`;
  return html`<div class="holds" ref=${root}
    onFocusOut=${(event) => isOpen && !root.current.contains(event.relatedTarget) && setOpen(false)}>
    <button type="button" ref=${trigger} class=${classes} aria-haspopup="listbox" aria-expanded=${String(isOpen)}
      aria-label=${name} onClick=${() => (isOpen ? close() : open())}>${button(isOpen)}</button>
    ${isOpen && html`<div class="menu" onKeyDown=${onKeyDown}>
      <input class="field" dir="auto" role="combobox" aria-expanded="true" aria-controls=${id} aria-label=${t("typed")}
        aria-activedescendant=${shown[active] ? `${id}-${active}` : null} placeholder=${t("typed")} autocomplete="off"
        value=${text} onInput=${(event) => (setText(event.target.value), setActive(0))} />
      <ul id=${id} role="listbox" aria-label=${label}>
        ${shown.map((one, place) => html`<li role="option" id=${`${id}-${place}`} key=${one.value}
          class=${place === active ? "active" : ""} aria-selected=${String(one.value === value)}
          onMouseDown=${(event) => event.preventDefault()} onClick=${() => choose(one)}>
          ${one.value === value ? html`<${Icon} name="check" />` : html`<span class="gap" />`}<span dir="auto">${one.label}</span>
          ${one.count !== undefined && html`<span class="count num">${one.count}</span>`}</li>`)}
      </ul></div>`}
  </div>`;
}
