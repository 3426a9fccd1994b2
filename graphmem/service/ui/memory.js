// The panel of one memory: its words, where they come from, its history, and what can be done with it.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { ApiError, failureOf, memoryPath, send } from "./api.js";
import { diffWords } from "./diff.js";
import { Editor, hasDraft } from "./editor.js";
import { Erase } from "./erase.js";
import { moment, nodes, reasonOf, t, written } from "./i18n.js";
import { splitAtNames } from "./marks.js";
import { Bones, Chip, Failed, Icon, IconButton, Owner, Reason, RequestId, Time, graphAddress, speakerOf, Who } from "./parts.js";

// Only the last change can be taken back.
const UNDOABLE = new Set(["UPDATE", "RETIRE", "FORGET", "PROMOTE", "COMPRESS", "ABSTRACT"]);
// Characters of a memory in the message that it is forgotten.
const TOLD = 60;
// The reason of a change that took another one back begins so.
const UNDO_REASON = "undo of ";

/** The words of a memory; the names that it mentions are underlined where they stand exactly so, and lead to the graph. */
function Words({ text, mentions, user, target }) {
  const types = new Map(mentions.map((one) => [one.name, one.type.toLowerCase()]));
  const parts = splitAtNames(text, [...types.keys()]);
  return html`<p class="read words" tabindex="-1" ref=${target} ...${written(text)}>${parts.map((part, place) =>
    place % 2 ? html`<a class="named" href=${graphAddress(part, user)}><mark class=${types.get(part)}>${part}</mark></a>` : part)}</p>`;
}

function Others({ words, name, ids, addressTo }) {
  return ids.map((id) => html`<p class="byline" key=${id}>${nodes(words, { it: html`<a href=${addressTo(id)}>${name}</a>` })}</p>`);
}

/** Who said a memory and when, and which ones it replaced, was replaced by, or stands for. */
function Byline({ record, origin, isPending, isOfAll, addressTo }) {
  const who = speakerOf(record);
  const values = { who: html`<b ...${written(who)}>${who}</b>`, when: html`<${Time} at=${record.at} />` };
  return html`<p class="byline">${nodes(who ? "said" : "noted", values)}
      ${isPending && html` <span class="faint">${t("pending")}</span>`}</p>
    ${isOfAll && html`<p class="byline">${record.user_id ? html`<a href=${addressOf("memories", record.id, { user: record.user_id })}>
      <${Owner} record=${record} /></a>` : html`<${Owner} record=${record} />`}</p>`}
    ${record.valid_to && html`<p class="byline">${nodes("retired", { when: html`<${Time} at=${record.valid_to} as="day" />` })}</p>`}
    <${Others} words="replaced_by" name=${t("another_memory")} ids=${origin.replaced_by} addressTo=${addressTo} />
    <${Others} words="replaces" name=${t("another_memory")} ids=${origin.replaces} addressTo=${addressTo} />
    <${Others} words="compressed_by" name=${t("another_memory")} ids=${origin.compressed_by} addressTo=${addressTo} />
    <${Others} words="compresses" name=${t("another_memory")} ids=${origin.compresses} addressTo=${addressTo} />
    <${Others} words="abstracts" name=${t("another_memory")} ids=${origin.abstracts} addressTo=${addressTo} />
    <${Others} words="abstracted_by" name=${t("another_memory")} ids=${origin.abstracted_by} addressTo=${addressTo} />`;
}

/** Returns whether a memory was made of others, and not drawn from messages. */
const isComposed = ({ events }) => events.some((one) => one.event === "COMPRESS" || one.event === "ABSTRACT");

function Sources({ record, origin }) {
  const { messages } = origin;
  if (record.kind === "episode" || (!messages.length && isComposed(origin))) return null;
  return html`<section class="part"><h2><span>${t("drawn_from")}</span> <small>${t("messages", { n: messages.length })}</small></h2>
    ${[...messages].reverse().map((one) => html`<div class="quote" key=${one.memory_id}>
      <${Who} record=${{ ...one, user_id: record.user_id }} />
      <div><p class="read" ...${written(one.content)}>${one.content}</p><${Time} at=${one.at} /></div></div>`)}
    ${!messages.length && html`<p class="faint">${t("no_sources")}</p>`}</section>`;
}

const ATTACHED = ["image", "audio", "video", "file"];

/** What was sent with a message beside its text, as lines: nothing is fetched, and a reference is text, whatever its scheme. */
function Attachments({ attachments }) {
  if (!attachments?.length) return null;
  return html`<section class="part"><h2><span>${t("attachments")}</span> <small>${attachments.length}</small></h2>
    <ul class="attached">${attachments.map((one, place) => html`<li key=${place}><span class="faint">${ATTACHED.includes(one.kind)
        ? t(`attached_${one.kind}`) : one.kind}</span>
      <div>${[one.caption, one.transcript].filter(Boolean).map((text) => html`<p class="read" ...${written(text)}>${text}</p>`)}
        <code>${one.ref}</code></div></li>`)}</ul></section>`;
}

function People({ mentions, user }) {
  if (!mentions.length) return null;
  return html`<section class="part"><h2><span>${t("people")}</span></h2><div class="chips">${mentions.map((one) => html`<${Chip} key=${one.key}
    name=${one.name} type=${one.type} href=${graphAddress(one.name, user)} />`)}</div></section>`;
}

function Change({ event, isNow, onUndo }) {
  const [before, after] = [event.old_memory ?? "", event.new_memory ?? ""];
  const isSame = event.event === "UPDATE" && before === after;
  const isUndo = event.reason?.startsWith(UNDO_REASON);
  const what = isUndo ? t("ev_undo") : isSame ? t("ev_details") : t(`ev_${event.event}`);
  const words = event.event === "UPDATE" && !isSame ? diffWords(before, after) : event.event === "ADD" ? [["same", after]] : [];
  return html`<li class=${isNow ? "ev now" : "ev"}><header><b>${what}</b> <${Time} at=${event.updated_at} />
    ${isNow && UNDOABLE.has(event.event) && html`<button type="button" class="btn quiet small" onClick=${onUndo}
      aria-label=${t("undo_of", { what, when: moment(event.updated_at) })}><${Icon} name="undo" /><span>${t("undo")}</span></button>`}</header>
    ${words.length > 0 && html`<p class="read" ...${written(after)}>${words.map(([kind, text]) =>
      kind === "same" ? text : kind === "ins" ? html`<ins>${text}</ins>` : html`<del>${text}</del>`)}</p>`}
    ${event.reason && !isUndo && html`<${Reason} text=${event.reason} />`}
    ${event.rule && html`<p class="faint">${t(`rule_${event.rule}`)}</p>`}</li>`;
}

function History({ events, onUndo }) {
  const newest = [...events].reverse();
  return html`<section class="part"><h2><span>${t("history")}</span> <small>${t("changes", { n: events.length })}</small></h2>
    <ol class="events">${newest.map((event, place) => html`<${Change} key=${event.id} event=${event} isNow=${place === 0}
      onUndo=${() => onUndo(event.id)} />`)}</ol></section>`;
}

/** Returns the beginning of a text, as messages tell it. */
export function told(text) {
  const letters = Array.from(text);
  return letters.length > TOLD ? `${letters.slice(0, TOLD - 1).join("").trimEnd()}…` : text;
}

/** Says that something was not done, and why: `key` are the words. */
export function sayFailed(app, key, error) {
  failureOf(error);
  app.notify(() => html`${t(key, { reason: reasonOf(error) })}<${RequestId} error=${error} />`);
}

/** Returns a function that does one piece of work at a time, and says `key` with the reason if it fails. */
export function useAction(app) {
  const isActing = useRef(false);
  return async (key, work) => {
    if (isActing.current) return;
    isActing.current = true;
    try {
      await work();
    } catch (error) {
      sayFailed(app, key, error);
    }
    isActing.current = false;
  };
}

/** What the lifecycle and its owner made of a memory. What is usual has no badge. */
export function Badges({ record }) {
  return html`${record.layer === "long_term" && html`<span class="tag">${t("long_term")}</span>`}
    ${record.pinned && html`<span class="tag">${t("pinned")}</span>`}
    ${record.forgotten_at && html`<span class="tag line">${t("forgotten")}</span>`}`;
}

/** Loads a memory with its origin, and changes it. `onBack` is called once it is in lists again, `onGone` once it is not. */
function useMemory(app, id, { onChanged, onGone, onBack, wasPending }) {
  const [loaded, setLoaded] = useState({ record: null, origin: null, error: null });
  const [isPending, setPending] = useState(wasPending);
  const query = { user_id: app.user };
  const load = useCallback(async () => {
    const [record, origin] = await Promise.all([
      send("GET", memoryPath(id), { query }),
      send("GET", memoryPath(id, "/explain"), { query }),
    ]);
    setLoaded({ record, origin, error: null });
    return origin;
  }, [id, app.user]);
  const reload = () => load().catch((error) => setLoaded({ record: null, origin: null, error: failureOf(error) }));
  useEffect(() => void reload(), [load]);
  const onUndone = async () => {
    const record = await send("GET", memoryPath(id), { query });
    onChanged(record);
    await load();
  };
  const save = async (text) => {
    const current = await send("GET", memoryPath(id), { query });
    if (current.memory !== loaded.record.memory) {
      onChanged(current);
      await load();
      throw new ApiError(409, t("changed_meanwhile"));
    }
    const record = await send("PUT", memoryPath(id), { query, body: { text } });
    onChanged(record);
    setPending(Boolean(record.pending?.length));
    const origin = await load();
    const event = origin.events.findLast((one) => one.event === "UPDATE");
    app.changed({ eventId: event.id, query, onUndone }, () => t("saved"));
    return record;
  };
  const undo = async (eventId) => {
    const { forgotten_at: wasForgotten } = loaded.record;
    await app.undo({ eventId, query, onUndone });
    if (wasForgotten) onBack();
  };
  const act = useAction(app);
  const forget = () => act("not_forgotten", async () => {
    const { memory, event_id: eventId } = await send("POST", memoryPath(id, "/forget"), { query });
    const words = told(memory);
    onGone([id]);
    if (eventId) app.changed({ eventId, query, onUndone: onBack }, () => t("forgotten_now", { words }));
  });
  const pin = (isPinned) => act("not_pinned", async () => {
    onChanged(await send(isPinned ? "PUT" : "DELETE", memoryPath(id, "/pin"), { query }));
    await load();
    const takeBack = async () => {
      onChanged(await send(isPinned ? "DELETE" : "PUT", memoryPath(id, "/pin"), { query }));
      await load();
    };
    app.changed({ takeBack }, () => t(isPinned ? "pinned_now" : "unpinned_now"));
  });
  return { ...loaded, isPending, reload, save, undo, forget, pin };
}

/**
 * `addressTo(id)` returns the address of another memory, of none without `id`. `wasPending`: it was not linked yet when it was added. `onGone` is called with
 * the ids of memories that were erased or forgotten, `onBack` when a forgotten one is there again.
 */
export function Memory({ id, app, addressTo, wasPending, onStep, onChanged, onGone, onBack }) {
  const changes = useMemory(app, id, { onChanged, onGone, onBack, wasPending });
  const { record, origin, error, isPending, reload, save, undo, forget, pin } = changes;
  const [isEditing, setEditing] = useState(hasDraft(id));
  const [isErasing, setErasing] = useState(false);
  const words = useRef();
  const isLoaded = record !== null;
  const isForgotten = Boolean(record?.forgotten_at);
  const forgetting = origin?.events.findLast((one) => one.event === "FORGET");
  const user = app.seesAll ? record?.user_id ?? undefined : undefined; // whose graph names lead to
  useLayoutEffect(() => {
    if (!isLoaded || isEditing) return;
    words.current.focus({ preventScroll: true });
    words.current.closest(".panel").querySelector("header").scrollIntoView({ block: "nearest" });
  }, [isLoaded, isEditing]);
  const close = () => {
    location.hash = addressTo();
  };
  const leave = () => setEditing(false);
  useLayoutEffect(() => {
    const ready = isLoaded ? { e: () => setEditing(true), Delete: () => setErasing(true) } : {};
    return app.keys({ Escape: close, ...ready, ...(isLoaded && !isForgotten && { f: forget }) });
  });
  const isMissing = error?.status === 404 || error?.status === 400;
  return html`<aside class="panel" aria-label=${t("memory")}>
    <header>${isLoaded && record.kind !== "episode" && html`<span class=${`tag ${record.kind}`}>${t(record.kind)}</span>`}
      ${isLoaded && html`<${Badges} record=${record} />`}
      <nav aria-label=${t("neighbours")}><${IconButton} icon="up" label=${t("newer")} onClick=${() => onStep(-1)} />
        <${IconButton} icon="down" label=${t("older_one")} onClick=${() => onStep(1)} />
        <${IconButton} icon="x" label=${t("close_panel")} onClick=${close} /></nav></header>
    <div class="leaf">
      ${!isLoaded && !error && html`<${Bones} rows=${2} />`}
      ${isMissing && html`<p class="read">${t("no_memory")}</p><p class="soft">${t("no_memory_do")}</p>`}
      ${error && !isMissing && html`<${Failed} error=${error} onRetry=${reload}>${t("memory_failed", { reason: reasonOf(error) })}<//>`}
      ${isLoaded && html`
        ${isEditing ? html`<${Editor} name=${id} text=${record.memory} leaveLabel=${t("keep")} onSave=${save} onSaved=${leave} onLeave=${leave} />`
          : html`<${Words} text=${record.memory} mentions=${origin.mentions} user=${user} target=${words} />`}
        <${Byline} record=${record} origin=${origin} isPending=${isPending} isOfAll=${app.seesAll} addressTo=${addressTo} />
        ${!isEditing && html`<div class="acts">
          <button type="button" class="btn" onClick=${() => setEditing(true)}><${Icon} name="edit" /><span>${t("edit")}</span></button>
          ${!isForgotten && html`<button type="button" class="btn quiet" onClick=${() => pin(!record.pinned)}>
            <${Icon} name="pin" /><span>${t(record.pinned ? "unpin" : "pin")}</span></button>`}
          <span class="end" />
          ${isForgotten ? forgetting && html`<button type="button" class="btn quiet" onClick=${() => undo(forgetting.id)}><${Icon} name="undo" /><span>${t("restore")}</span></button>`
            : html`<button type="button" class="btn quiet" onClick=${forget}>${t("forget")}</button>`}
          <button type="button" class="btn quiet warns" onClick=${() => setErasing(true)}>${t("erase")}</button></div>`}
        <${Sources} record=${record} origin=${origin} />
        <${Attachments} attachments=${record.attachments} />
        <${People} mentions=${origin.mentions} user=${user} />
        <${History} events=${origin.events} onUndo=${undo} />`}
    </div>
    ${isLoaded && html`<footer><span class="mono">${id}</span>
      <button type="button" class="btn quiet small" onClick=${() => app.copy(id)}>
        <${Icon} name="copy" /><span>${t("copy_id")}</span></button></footer>`}
    ${isErasing && html`<${Erase} record=${record} origin=${origin} app=${app} onErased=${onGone} onForget=${isForgotten ? null : forget} onClose=${() => setErasing(false)} />`}
  </aside>`;
}
