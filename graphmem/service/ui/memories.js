// The view of all memories: a list by day with filters, and the opened memory beside it.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { send } from "./api.js";
import { FirstDay } from "./first_day.js";
import { day, languageOf, localDay, number, reasonOf, t, weekday } from "./i18n.js";
import { Memory } from "./memory.js";
import { Bones, Busy, Failed, Icon, Menu, Time, speakerOf } from "./parts.js";

const PAGE_ROWS = 100;
// Rows that are looked through at a time for filters that the service does not have: words and day.
const FILTER_ROWS = 1000;
const KINDS = {
  usual: undefined,
  fact: "fact",
  episode: "episode",
  summary: "summary",
  all: "fact,episode,summary",
};

function matches(record, words, wantedDay) {
  if (wantedDay && localDay(record.at) !== wantedDay) return false;
  const text = `${record.memory} ${speakerOf(record)}`.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
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

const NOT_LOADED = { rows: [], total: 0, cursor: "", isLoaded: false, isBusy: true, problem: "" };

/** Loads a list of memories page by page. `isSearching`: larger pages, for filters of the page itself. */
function useList(user, kinds, isSearching) {
  const [list, setList] = useState(NOT_LOADED);
  const round = useRef(0); // the answer to an earlier question is dropped
  const load = useCallback(
    async (before) => {
      const mine = (round.current += 1);
      setList((now) => ({ ...now, isBusy: true, problem: "" }));
      const query = { user_id: user, kinds, limit: isSearching ? FILTER_ROWS : PAGE_ROWS, cursor: before?.cursor };
      try {
        const page = await send("GET", "/memories", { query });
        if (mine !== round.current) return;
        const rows = [...(before?.rows ?? []), ...page.results];
        setList({ rows, total: page.total, cursor: page.next_cursor, isLoaded: true, isBusy: false, problem: "" });
      } catch (error) {
        const problem = reasonOf(error);
        if (mine === round.current) setList({ ...(before ?? NOT_LOADED), isBusy: false, problem });
      }
    },
    [user, kinds, isSearching],
  );
  return [list, setList, load];
}

function Row({ record, isOpen }) {
  const isChanged = record.updated_at !== record.created_at;
  return html`<li><a class="row" href=${addressOf("memories", record.id)} data-id=${record.id} aria-current=${isOpen ? "true" : null}>
    <span class="who" lang=${languageOf(speakerOf(record))}>${speakerOf(record)}</span>
    <span class="cell"><span class="read" lang=${languageOf(record.memory)}>${record.memory}</span>
      ${(record.kind !== "episode" || isChanged) && html` <span class="tags">
        ${record.kind !== "episode" && html`<span class=${`tag ${record.kind}`}>${t(record.kind)}</span>`}
        ${isChanged && html`<${Icon} name="edit" label=${t("changed")} />`}</span>`}</span>
    <span class="meta"><${Time} at=${record.at} as="time" class="num" /></span></a></li>`;
}

function Filters({ filters, setFilters, field }) {
  const { words, kind, day: wantedDay } = filters;
  const change = (values) => setFilters({ ...filters, ...values });
  const options = Object.keys(KINDS).map((value) => ({ value, label: t(`kinds_${value}`) }));
  return html`<div class="filters">
    <div class="find"><${Icon} name="find" /><input class="field" type="search" ref=${field} aria-label=${t("filter")}
      placeholder=${t("filter_hint")} value=${words} onInput=${(event) => change({ words: event.target.value })} /><kbd>/</kbd></div>
    <div class="filters picks">
      <${Menu} class=${kind === "usual" ? "pick" : "pick on"} label=${t("kinds")} value=${kind} options=${options}
        onChoose=${(value) => change({ kind: value })}
        button=${() => html`<span>${t(`kinds_${kind}`)}</span><${Icon} name="down" />`} />
      <label class=${wantedDay ? "pick on" : "pick"}><span>${t("day")}</span>
        <input type="date" value=${wantedDay} onInput=${(event) => change({ day: event.target.value })} /></label>
      ${(words || wantedDay || kind !== "usual") && html`<button type="button" class="btn quiet small"
        onClick=${() => setFilters({ words: "", kind: "usual", day: "" })}><${Icon} name="x" /><span>${t("filter_off")}</span></button>`}
    </div></div>`;
}

function titleOf(app) {
  if (app.caller.role === "user") return t("title_own");
  return app.user ? t("title", { name: app.user }) : t("title_all");
}

function Pager({ list, shown, isSearching, onMore }) {
  const { rows, total, cursor, isBusy } = list;
  const place = isSearching
    ? t("matching", { n: shown.length, among: number(rows.length), total: number(total) })
    : t("shown", { n: rows.length, total: number(total) });
  return html`<div class="pager"><span class="num" role="status">${place}</span>
    ${cursor && html`<${Busy} busy=${isBusy} busyLabel=${t("older_busy")} onClick=${onMore}
      label=${t(isSearching ? "older_search" : "older")} />`}</div>`;
}

/** `id` is the opened memory's, "" without one. */
export function Memories({ app, id }) {
  const [filters, setFilters] = useState({ words: "", kind: "usual", day: "" });
  const isSearching = Boolean(filters.words.trim() || filters.day);
  const [list, setList, load] = useList(app.user, KINDS[filters.kind], isSearching);
  const [field, root, former] = [useRef(), useRef(), useRef("")];
  useEffect(() => void load(null), [load]);
  useEffect(() => {
    // A day that is older than what is loaded: load on until it is reached.
    const oldest = list.rows.at(-1);
    if (filters.day && list.cursor && !list.isBusy && !list.problem && localDay(oldest.at) >= filters.day) load(list);
  }, [filters.day, list]);
  const shown = isSearching ? list.rows.filter((one) => matches(one, filters.words.trim(), filters.day)) : list.rows;
  const rowOf = (wanted) => root.current.querySelector(`.row[data-id="${CSS.escape(wanted)}"]`);
  useLayoutEffect(() => {
    if (former.current && !id) rowOf(former.current)?.focus();
    former.current = id;
  }, [id]);
  const step = (by) => {
    const focused = document.activeElement?.closest?.(".row")?.dataset.id;
    const place = shown.findIndex((one) => one.id === (id || focused));
    const next = shown[place < 0 ? 0 : place + by];
    if (!next) return;
    if (id) location.hash = addressOf("memories", next.id);
    else rowOf(next.id)?.focus();
  };
  useLayoutEffect(() => app.keys({ "/": () => field.current.focus(), j: () => step(1), k: () => step(-1) }));
  const onChanged = (record) =>
    setList((now) => ({ ...now, rows: now.rows.map((one) => (one.id === record.id ? record : one)) }));
  const onErased = (ids) => {
    const place = shown.findIndex((one) => one.id === id);
    const next = shown.slice(place + 1).find((one) => !ids.includes(one.id)) ?? shown[place - 1];
    setList((now) => {
      const rows = now.rows.filter((one) => !ids.includes(one.id));
      return { ...now, rows, total: now.total - (now.rows.length - rows.length) };
    });
    former.current = next?.id ?? "";
    location.hash = addressOf("memories");
  };
  const isEmpty = list.isLoaded && !list.isBusy && !list.problem && list.total === 0 && filters.kind === "usual";
  if (isEmpty && !id) return html`<${FirstDay} app=${app} onLook=${() => load(null)} />`;
  return html`<section class="view" ref=${root}><div class=${id ? "split open" : "split alone"}>
    <div class="list">
      <div class="head"><div><h1>${titleOf(app)}</h1><p class="num">${list.isLoaded ? t("total", { n: list.total }) : "\u00a0"}</p></div></div>
      <${Filters} filters=${filters} setFilters=${setFilters} field=${field} />
      ${list.problem && html`<${Failed} onRetry=${() => load(list.isLoaded ? list : null)}>
        ${t("not_loaded", { reason: list.problem })}<//>`}
      ${!list.isLoaded && list.isBusy && html`<${Bones} rows=${8} />`}
      ${daysOf(shown).map((one) => html`<section class="day" key=${one.key}>
        <h2><span>${day(one.at, { short: true })}</span> <small>${weekday(one.at)}</small></h2>
        <ul class="rows">${one.rows.map((record) => html`<${Row} key=${record.id} record=${record} isOpen=${record.id === id} />`)}</ul>
      </section>`)}
      ${list.isLoaded && !list.isBusy && !list.problem && !shown.length && html`<div class="empty"><p class="read">${t("none")}</p>
        <p class="soft">${t("none_do")}</p></div>`}
      ${list.isLoaded && html`<${Pager} list=${list} shown=${shown} isSearching=${isSearching} onMore=${() => load(list)} />`}
    </div>
    ${id && html`<${Memory} key=${id} id=${id} app=${app} onStep=${step} onChanged=${onChanged} onErased=${onErased} />`}
  </div></section>`;
}
