// The view of all memories: a list by day with filters, and the opened memory beside it.

import { html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { Add } from "./add.js";
import { addressOf, readAddress } from "./addresses.js";
import { failureOf, send } from "./api.js";
import { beginOfDay, isPast, readDay } from "./days.js";
import { FirstDay } from "./first_day.js";
import { TYPES, day, languageOf, localDay, locale, number, reasonOf, t, time, typeName, weekday } from "./i18n.js";
import { Badges, Memory } from "./memory.js";
import { Bones, Busy, Choice, Failed, Icon, Menu, ownerOf, Owner, Time, TruthPick, Who, speakerOf } from "./parts.js";
import { language } from "./preferences.js";

const PAGE_ROWS = 100;
// Milliseconds after the last key before words are looked for.
const PAUSE = 200;
// What of memories that are no longer true is listed, as the service's options.
const TRUTH = { now: {}, past: { retired_only: true }, both: { show_retired: true } };
const KINDS = {
  usual: undefined,
  fact: "fact",
  episode: "episode",
  summary: "summary",
  all: "fact,episode,summary",
};

// The id of a memory in the address while it is written.
const NEW = "new";

/** Returns the filters that an address names; others than the page offers are left out. */
function filtersOf({ words = "", truth, kind, type, day: wanted = "" }) {
  return {
    words,
    truth: truth in TRUTH ? truth : "now",
    kind: kind in KINDS ? kind : "usual",
    type: type in TYPES ? type : "",
    day: readDay(wanted),
  };
}

/** Returns the times between which a local day (YYYY-MM-DD) is. */
function boundsOf(wanted) {
  return wanted ? { since: beginOfDay(wanted), until: beginOfDay(wanted, 1) } : {};
}

/** Returns a text once nobody has typed on for a moment; an empty one at once. */
function useSettled(text) {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  return text && settled;
}

function daysOf(rows) {
  const days = [];
  for (const record of rows) {
    const key = localDay(record.at);
    if (days.at(-1)?.key !== key) days.push({ key, at: record.at, rows: [] });
    days.at(-1).rows.push(record);
  }
  return days;
}

const NOT_LOADED = { rows: [], total: 0, retired: 0, cursor: "", isLoaded: false, isBusy: true, problem: null };

/** Loads a list of memories page by page. `total` counts those listed, `retired` those that match and are no longer true. */
function useList(user, { words, truth, kind, type, day: wanted }) {
  const [list, setList] = useState(NOT_LOADED);
  const round = useRef(0); // the answer to an earlier question is dropped
  const load = useCallback(
    async (before) => {
      const mine = (round.current += 1);
      setList((now) => ({ ...now, isBusy: true, problem: null }));
      const query = {
        user_id: user, kinds: KINDS[kind], mentions_type: type, ...boundsOf(wanted),
        q: words, ...TRUTH[truth], limit: PAGE_ROWS, cursor: before?.cursor,
      };
      try {
        const page = await send("GET", "/memories", { query });
        if (mine !== round.current) return;
        const rows = [...(before?.rows ?? []), ...page.results];
        setList({ rows, total: page.total, retired: page.retired ?? 0, cursor: page.next_cursor, isLoaded: true, isBusy: false, problem: null });
      } catch (error) {
        const problem = failureOf(error);
        if (mine === round.current) setList({ ...(before ?? NOT_LOADED), isBusy: false, problem });
      }
    },
    [user, words, truth, kind, type, wanted],
  );
  return [list, setList, load];
}

/** Tells whether memories of other kinds, or no longer true ones, are stored than an empty list may show, null while that is not known. */
function useOthers(user, isListEmpty) {
  const [hasOthers, setOthers] = useState(null);
  useEffect(() => {
    setOthers(null);
    if (!isListEmpty) return;
    const query = { user_id: user, kinds: KINDS.all, show_retired: true, limit: 1 };
    send("GET", "/memories", { query }).then(({ total }) => setOthers(total > 0), () => setOthers(false));
  }, [user, isListEmpty]);
  return hasOthers;
}

/** A row. One that shows the same as before is not compared again. Its label is what it shows: outside of the window browsers do not read that aloud. */
function Row({ record, href, isLeaving, isOfAll, onLeft }) {
  return useMemo(() => {
    const owner = isOfAll && t("whose_is", { name: ownerOf(record) });
    const isLong = record.layer === "long_term";
    const states = [isLong && t("long_term"), record.pinned && t("pinned"), isPast(record) && t("truth_past")];
    const tags = [owner, record.kind !== "episode" && t(record.kind), ...states].filter(Boolean);
    const isChanged = record.updated_at !== record.created_at;
    const label = [speakerOf(record), record.memory, ...tags, time(record.at), isChanged && t("changed")].filter(Boolean).join(" ");
    return html`<li class=${isLeaving ? "leaving" : null} inert=${isLeaving} onAnimationEnd=${() => onLeft(record.id)}>
      <a class="row" href=${href} data-id=${record.id} aria-label=${label} lang=${languageOf(record.memory)}>
      <${Who} record=${record} />${" "}<span class="cell" dir="auto"><span class="read">${record.memory}</span>
        ${(tags.length > 0 || isChanged) && html` <span class="tags" lang=${locale()}>
          ${isOfAll && html`<span class="tag line"><${Owner} record=${record} /></span>`}${" "}
          ${record.kind !== "episode" && html`<span class=${`tag ${record.kind}`}>${t(record.kind)}</span>`}${" "}
          <${Badges} record=${record} />${" "}
          ${isPast(record) && html`<span class="tag line">${t("truth_past")}</span>`}
          ${isChanged && html`<${Icon} name="edit" label=${t("changed")} />`}</span>`}</span>${" "}<span class="meta" lang=${locale()}><${Time} at=${record.at} as="time" class="num" /></span></a></li>`;
  }, [record, href, isLeaving, isOfAll, language()]);
}

/** The rows by day. They are not compared again when another memory is opened: of 2,080, that took longer than to show it. */
function Days({ rows, addressTo, leaving, isOfAll, onLeft }) {
  return useMemo(() => daysOf(rows).map((one) => html`<section class="day" key=${one.key}>
    <h2><span>${day(one.at, { short: true })}</span> <small>${weekday(one.at)}</small></h2>
    <ul class="rows">${one.rows.map((record) => html`<${Row} key=${record.id} record=${record} href=${addressTo(record.id)}
      isLeaving=${leaving.has(record.id)} isOfAll=${isOfAll} onLeft=${onLeft} />`)}</ul>
  </section>`), [rows, addressTo(), leaving, isOfAll, language()]);
}

function isNarrowed({ words, truth, kind, type, day: wanted }) {
  return Boolean(words || type || wanted || kind !== "usual" || truth !== "now");
}

// Under which words are looked for wherever they are kept: also in messages that facts stand for, and in former texts.
const EVERYTHING = { kind: "all", truth: "both" };
const canLookFurther = ({ words, kind, truth }) => Boolean(words) && (kind !== EVERYTHING.kind || truth !== EVERYTHING.truth);

function Filters({ filters, setFilters, field }) {
  const { words, truth, kind, type, day: wantedDay } = filters;
  const change = (values) => setFilters({ ...filters, ...values });
  const kinds = Object.keys(KINDS).map((value) => ({ value, label: t(`kinds_${value}`) }));
  const types = Object.keys(TYPES).map((value) => ({ value, label: typeName(value) }));
  types.unshift({ value: "", label: t("type_any") });
  return html`<div class="filters">
    <div class="find"><${Icon} name="find" /><input class="field" type="search" dir="auto" ref=${field} aria-label=${t("filter")}
      placeholder=${t("filter_hint")} value=${words} onInput=${(event) => change({ words: event.target.value })} /><kbd>/</kbd></div>
    <div class="filters picks">
      <${Menu} class=${kind === "usual" ? "pick" : "pick on"} label=${t("kinds")} value=${kind} options=${kinds}
        onChoose=${(value) => change({ kind: value })}
        button=${() => html`<${Choice} label=${t("kinds")}>${t(`kinds_${kind}`)}<//>`} />
      <${TruthPick} value=${truth} options=${Object.keys(TRUTH)} onChoose=${(value) => change({ truth: value })} />
      <${Menu} class=${type ? "pick on" : "pick"} label=${t("type")} value=${type} options=${types}
        onChoose=${(value) => change({ type: value })}
        button=${() => html`<${Choice} label=${t("type")}>${type ? typeName(type) : t("type_any")}<//>`} />
      <label class=${wantedDay ? "pick on" : "pick"}><span>${t("day")}</span>
        <input type="date" value=${wantedDay} onInput=${(event) => change({ day: event.target.value })} /></label>
      ${isNarrowed(filters) && html`<button type="button" class="btn quiet small"
        onClick=${() => setFilters(filtersOf({}))}><${Icon} name="x" /><span>${t("filter_off")}</span></button>`}
    </div></div>`;
}

function titleOf(app) {
  const agent = app.caller.agent_id;
  if (app.caller.role === "user") return agent ? t("title_agent", { agent }) : t("title_own");
  return app.user ? t("title", { name: app.user }) : t("title_all");
}

/** Returns the number of memories that match, and how many match but are no longer true, in words. */
function countsOf({ total, retired }, truth) {
  if (truth === "past") return t("total_past", { n: total });
  if (!retired) return t("total", { n: total });
  return t(truth === "both" ? "total_both" : "total_and_past", { n: total, retired: number(retired) });
}

function Pager({ list, onMore }) {
  const { rows, total, cursor, isBusy } = list;
  return html`<div class="pager"><span class="num" role="status">${t("shown", { n: rows.length, total: number(total) })}</span>
    ${cursor && html`<${Busy} busy=${isBusy} busyLabel=${t("older_busy")} onClick=${onMore} label=${t("older")} />`}</div>`;
}

/** Removes memories from a list: rows that are shown collapse once the message about it is there, unless motion is unwanted. */
function useRemoval(shown, setList) {
  const [leaving, setLeaving] = useState(new Set());
  const drop = (ids) => setList((now) => ({ ...now, rows: now.rows.filter((one) => !ids.has(one.id)) }));
  const remove = (ids) => {
    setList((now) => ({ ...now, total: now.total - now.rows.filter((one) => ids.includes(one.id)).length }));
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const collapsing = new Set(isStill ? [] : shown.filter((one) => ids.includes(one.id)).map((one) => one.id));
    setLeaving((now) => new Set([...now, ...collapsing]));
    drop(new Set(ids.filter((one) => !collapsing.has(one))));
  };
  const onLeft = (id) => {
    setLeaving((now) => new Set([...now].filter((one) => one !== id)));
    drop(new Set([id]));
  };
  return { leaving, remove, onLeft };
}

/** `id` is the opened memory's, "" without one and `NEW` while one is written; `query` are the filters. */
export function Memories({ app, id, query }) {
  const filters = filtersOf(query);
  const [list, setList, load] = useList(app.user, { ...filters, words: useSettled(filters.words.trim()) });
  const [pendingId, setPendingId] = useState(""); // of a memory that was added and is not linked yet
  const [field, root, adder, former] = [useRef(), useRef(), useRef(), useRef("")];
  const latest = useRef(load); // whoever takes a change back later wants the list of that time
  latest.current = load;
  useEffect(() => void load(null), [load]);
  const shown = list.rows;
  const { leaving, remove, onLeft } = useRemoval(shown, setList);
  const isWhole = !isNarrowed(filters);
  useEffect(() => {
    if (list.isLoaded && !list.isBusy && isWhole) app.count("memories", list.total);
  }, [list, isWhole]);
  const addressTo = (wanted, wantedFilters = filters) => {
    const { kind, truth, ...others } = wantedFilters;
    return addressOf("memories", wanted, { ...others, kind: kind === "usual" ? "" : kind, truth: truth === "now" ? "" : truth });
  };
  const setFilters = (wanted) => location.replace(addressTo(id, wanted));
  const rowOf = (wanted) => root.current.querySelector(`.row[data-id="${CSS.escape(wanted)}"]`);
  useLayoutEffect(() => {
    if (former.current && !id) (former.current === NEW ? adder.current : rowOf(former.current))?.focus();
    former.current = id;
  }, [id]);
  useLayoutEffect(() => { // here, so that no row but these two has to be looked at
    const row = id ? rowOf(id) : null;
    row?.setAttribute("aria-current", "true");
    return () => row?.removeAttribute("aria-current");
  });
  const step = (by) => {
    const staying = shown.filter((one) => !leaving.has(one.id));
    const focused = document.activeElement?.closest?.(".row")?.dataset.id;
    const place = staying.findIndex((one) => one.id === (id || focused));
    const next = staying[place < 0 ? 0 : place + by];
    if (!next) return;
    if (id) location.hash = addressTo(next.id);
    else rowOf(next.id)?.focus();
  };
  useLayoutEffect(() => app.keys({ "/": () => field.current.focus(), j: () => step(1), k: () => step(-1) }));
  const close = () => {
    location.hash = addressTo();
  };
  const onChanged = (record) =>
    setList((now) => ({ ...now, rows: now.rows.map((one) => (one.id === record.id ? record : one)) }));
  const onGone = (ids) => {
    const place = shown.findIndex((one) => one.id === id);
    const next = shown.slice(place + 1).find((one) => !ids.includes(one.id)) ?? shown[place - 1];
    remove(ids);
    former.current = next?.id ?? "";
    close();
  };
  const onAdded = (added, isPending) => {
    setPendingId(isPending ? added : "");
    load(null);
    // Without filters, so that it is in the list. Somebody who went elsewhere meanwhile stays there.
    if (readAddress(location.hash).id === NEW) location.replace(addressOf("memories", added));
  };
  const isEmpty = list.isLoaded && !list.isBusy && !list.problem && list.total === 0 && !list.rows.length && isWhole;
  const hasOthers = useOthers(app.user, isEmpty);
  if (isEmpty && hasOthers === false && !id) return html`<${FirstDay} app=${app} onLook=${() => load(null)} />`;
  return html`<section class="view" ref=${root}><div class=${id ? "split open" : "split alone"}>
    <div class="list">
      <div class="head"><div><h1>${titleOf(app)}</h1><p class="num">${list.isLoaded ? countsOf(list, filters.truth) : "\u00a0"}</p></div>
        <a class="btn primary" ref=${adder} href=${addressTo(NEW)}><${Icon} name="plus" /><span>${t("add")}</span></a></div>
      <${Filters} filters=${filters} setFilters=${setFilters} field=${field} />
      ${list.problem && html`<${Failed} error=${list.problem} onRetry=${() => load(list.isLoaded ? list : null)}>
        ${t("not_loaded", { reason: reasonOf(list.problem) })}<//>`}
      ${!list.isLoaded && list.isBusy && html`<${Bones} rows=${8} />`}
      <${Days} rows=${shown} addressTo=${addressTo} leaving=${leaving} isOfAll=${app.seesAll} onLeft=${onLeft} />
      ${isEmpty && hasOthers && !list.retired && html`<div class="empty"><p class="read">${t("none_drawn")}</p><p class="soft">${t("none_drawn_do")}</p>
        <p><button type="button" class="btn" onClick=${() => setFilters(filtersOf({ kind: "all" }))}>${t("kinds_all")}</button></p></div>`}
      ${list.isLoaded && !list.isBusy && !list.problem && !shown.length && !(isEmpty && hasOthers !== false && !list.retired) && html`<div class="empty">
        <p class="read">${t(list.retired ? "none_now" : isWhole ? "first_title" : "none")}</p>
        ${!isWhole && !list.retired && html`<p class="soft">${t("none_do")}</p>`}
        ${canLookFurther(filters) && !list.retired && html`<p><button type="button" class="btn"
          onClick=${() => setFilters({ ...filters, ...EVERYTHING })}>${t("none_look")}</button></p>`}
        ${list.retired > 0 && html`<p><button type="button" class="btn" onClick=${() => setFilters({ ...filters, truth: "past" })}>
          ${t("none_now_do", { n: list.retired })}</button></p>`}</div>`}
      ${list.isLoaded && list.total > 0 && html`<${Pager} list=${list} onMore=${() => load(list)} />`}
    </div>
    ${id === NEW && html`<${Add} app=${app} onAdded=${onAdded} onClose=${close} />`}
    ${id && id !== NEW && html`<${Memory} key=${id} id=${id} app=${app} addressTo=${addressTo} wasPending=${id === pendingId}
      onStep=${step} onChanged=${onChanged} onGone=${onGone} onBack=${() => latest.current(null)} />`}
  </div></section>`;
}
