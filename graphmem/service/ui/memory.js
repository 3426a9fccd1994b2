// The panel of one memory: its words, where they come from, its history, and what can be done with it.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { memoryPath, send } from "./api.js";
import { diffWords } from "./diff.js";
import { Erase } from "./erase.js";
import { languageOf, moment, nodes, reasonOf, t, typeName } from "./i18n.js";
import { splitAtNames } from "./marks.js";
import { Bones, Busy, Failed, Icon, IconButton, Time, speakerOf } from "./parts.js";

const UNDOABLE = new Set(["UPDATE", "RETIRE"]);
// Texts that were typed and not saved, by the memory's id: closing a panel does not lose them.
const drafts = new Map();

/** Forgets all texts that were typed and not saved. */
export function dropDrafts() {
  drafts.clear();
}

/** The words of a memory, with the names that it mentions underlined where they stand exactly so. */
function Words({ text, mentions, target }) {
  const types = new Map(mentions.map((one) => [one.name, one.type.toLowerCase()]));
  const parts = splitAtNames(text, [...types.keys()]);
  return html`<p class="read words" tabindex="-1" ref=${target} lang=${languageOf(text)}>${parts.map((part, place) =>
    place % 2 ? html`<mark class=${types.get(part)}>${part}</mark>` : part)}</p>`;
}

function Byline({ record, isPending }) {
  const who = speakerOf(record);
  const values = { who: html`<b>${who}</b>`, when: html`<${Time} at=${record.at} />` };
  return html`<p class="byline">${nodes(who ? "said" : "noted", values)}
      ${isPending && html` <span class="faint">${t("pending")}</span>`}</p>
    ${record.valid_to && html`<p class="byline">${nodes("retired", { when: html`<${Time} at=${record.valid_to} as="day" />` })}</p>`}`;
}

function Editor({ id, text, onSave, onLeave }) {
  const [draft, setDraft] = useState(drafts.get(id) ?? text);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const field = useRef();
  useLayoutEffect(() => field.current.focus(), []);
  const type = (value) => {
    setDraft(value);
    drafts.set(id, value);
  };
  const leave = () => {
    drafts.delete(id);
    onLeave();
  };
  const save = async () => {
    if (isBusy) return;
    if (draft === text) return leave();
    setBusy(true);
    try {
      await onSave(draft);
      leave();
    } catch (error) {
      setProblem(t("not_saved", { reason: reasonOf(error) }));
      setBusy(false);
      field.current?.focus();
    }
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
    else if (event.key === "Escape") onLeave(); // the draft stays
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div onKeyDown=${onKeyDown}>
    <textarea class="field read" rows="5" ref=${field} aria-label=${t("words")} lang=${languageOf(draft)} value=${draft}
      aria-invalid=${problem ? "true" : null} aria-describedby=${problem ? "edit-problem" : null}
      onInput=${(event) => type(event.target.value)} />
    ${problem && html`<p class="hint bad" id="edit-problem" role="alert">${problem}</p>`}
    <div class="acts"><${Busy} class="primary" busy=${isBusy} label=${t("save")} busyLabel=${t("saving")} onClick=${save} />
      <button type="button" class="btn quiet" onClick=${leave}>${t("keep")}</button></div></div>`;
}

function Sources({ record, origin }) {
  if (record.kind === "episode") return null;
  const { messages } = origin;
  return html`<section class="part"><h2><span>${t("drawn_from")}</span> <small>${t("messages", { n: messages.length })}</small></h2>
    ${messages.map((one) => html`<div class="quote" key=${one.memory_id}>
      <span class="who">${speakerOf({ ...one, user_id: record.user_id })}</span>
      <div><p class="read" lang=${languageOf(one.content)}>${one.content}</p><${Time} at=${one.at} /></div></div>`)}
    ${!messages.length && html`<p class="faint">${t("no_sources")}</p>`}</section>`;
}

function People({ mentions }) {
  if (!mentions.length) return null;
  return html`<section class="part"><h2><span>${t("people")}</span></h2><div class="chips">${mentions.map((one) => {
    const type = one.type.toLowerCase();
    return html`<span class=${`chip ${type}`} key=${one.key} title=${typeName(one.type)}>
      <svg class=${`t ${type}`} role="img" aria-label=${typeName(one.type)}><use href=${`#t-${type}`} /></svg><span>${one.name}</span></span>`;
  })}</div></section>`;
}

function Change({ event, isNow, onUndo }) {
  const [before, after] = [event.old_memory ?? "", event.new_memory ?? ""];
  const isSame = event.event === "UPDATE" && before === after;
  const what = isSame ? t("ev_details") : t(`ev_${event.event}`);
  const words = event.event === "UPDATE" && !isSame ? diffWords(before, after) : event.event === "ADD" ? [["same", after]] : [];
  return html`<li class=${isNow ? "ev now" : "ev"}><header><b>${what}</b> <${Time} at=${event.updated_at} />
    ${UNDOABLE.has(event.event) && html`<button type="button" class="btn quiet small" onClick=${onUndo}
      aria-label=${t("undo_of", { what, when: moment(event.updated_at) })}><${Icon} name="undo" /><span>${t("undo")}</span></button>`}</header>
    ${words.length > 0 && html`<p class="read" lang=${languageOf(after)}>${words.map(([kind, text]) =>
      kind === "same" ? text : kind === "ins" ? html`<ins>${text}</ins>` : html`<del>${text}</del>`)}</p>`}
    ${event.reason && html`<p class="faint">${event.reason}</p>`}</li>`;
}

function History({ events, onUndo }) {
  const newest = [...events].reverse();
  return html`<section class="part"><h2><span>${t("history")}</span> <small>${t("changes", { n: events.length })}</small></h2>
    <ol class="events">${newest.map((event, place) => html`<${Change} key=${event.id} event=${event} isNow=${place === 0}
      onUndo=${() => onUndo(event.id)} />`)}</ol></section>`;
}

/** Loads a memory with its origin, and changes it. */
function useMemory(app, id, onChanged) {
  const [loaded, setLoaded] = useState({ record: null, origin: null, error: null });
  const [isPending, setPending] = useState(false);
  const query = { user_id: app.user };
  const load = useCallback(async () => {
    const [record, origin] = await Promise.all([
      send("GET", memoryPath(id), { query }),
      send("GET", memoryPath(id, "/explain"), { query }),
    ]);
    setLoaded({ record, origin, error: null });
    return origin;
  }, [id, app.user]);
  const reload = () => load().catch((error) => setLoaded({ record: null, origin: null, error }));
  useEffect(() => void reload(), [load]);
  const onUndone = async () => {
    const record = await send("GET", memoryPath(id), { query });
    onChanged(record);
    await load();
  };
  const save = async (text) => {
    const record = await send("PUT", memoryPath(id), { query, body: { text } });
    onChanged(record);
    setPending(Boolean(record.pending?.length));
    const origin = await load();
    const event = origin.events.findLast((one) => one.event === "UPDATE");
    app.changed({ eventId: event.id, query, onUndone }, t("saved"));
  };
  const undo = (eventId) => app.undo({ eventId, query, onUndone });
  return { ...loaded, isPending, reload, save, undo };
}

export function Memory({ id, app, onStep, onChanged, onErased }) {
  const { record, origin, error, isPending, reload, save, undo } = useMemory(app, id, onChanged);
  const [isEditing, setEditing] = useState(drafts.has(id));
  const [isErasing, setErasing] = useState(false);
  const words = useRef();
  const isLoaded = record !== null;
  useLayoutEffect(() => {
    if (isLoaded && !isEditing) words.current?.focus();
  }, [isLoaded, isEditing]);
  const close = () => {
    location.hash = addressOf("memories");
  };
  useLayoutEffect(() => {
    const ready = isLoaded ? { e: () => setEditing(true), Delete: () => setErasing(true) } : {};
    return app.keys({ Escape: close, ...ready });
  });
  const isMissing = error?.status === 404 || error?.status === 400;
  return html`<aside class="panel" aria-label=${t("memory")}>
    <header>${isLoaded && record.kind !== "episode" && html`<span class=${`tag ${record.kind}`}>${t(record.kind)}</span>`}
      <nav aria-label=${t("neighbours")}><${IconButton} icon="up" label=${t("newer")} onClick=${() => onStep(-1)} />
        <${IconButton} icon="down" label=${t("older_one")} onClick=${() => onStep(1)} />
        <${IconButton} icon="x" label=${t("close_panel")} onClick=${close} /></nav></header>
    <div class="leaf">
      ${!isLoaded && !error && html`<${Bones} rows=${2} />`}
      ${isMissing && html`<p class="read">${t("no_memory")}</p><p class="soft">${t("no_memory_do")}</p>`}
      ${error && !isMissing && html`<${Failed} onRetry=${reload}>${t("memory_failed", { reason: reasonOf(error) })}<//>`}
      ${isLoaded && html`
        ${isEditing ? html`<${Editor} id=${id} text=${record.memory} onSave=${save} onLeave=${() => setEditing(false)} />`
          : html`<${Words} text=${record.memory} mentions=${origin.mentions} target=${words} />`}
        <${Byline} record=${record} isPending=${isPending} />
        ${!isEditing && html`<div class="acts">
          <button type="button" class="btn" onClick=${() => setEditing(true)}><${Icon} name="edit" /><span>${t("edit")}</span></button>
          <span class="end" /><button type="button" class="btn quiet warns" onClick=${() => setErasing(true)}>${t("erase")}</button></div>`}
        <${Sources} record=${record} origin=${origin} />
        <${People} mentions=${origin.mentions} />
        <${History} events=${origin.events} onUndo=${undo} />`}
    </div>
    ${isLoaded && html`<footer><span class="mono">${id}</span>
      <button type="button" class="btn quiet small" onClick=${() => navigator.clipboard?.writeText(id).then(() => app.notify(t("copied")))}>
        <${Icon} name="copy" /><span>${t("copy_id")}</span></button></footer>`}
    ${isErasing && html`<${Erase} record=${record} origin=${origin} app=${app} onErased=${onErased} onClose=${() => setErasing(false)} />`}
  </aside>`;
}
