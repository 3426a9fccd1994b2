// The view of a search: a question, and its hits with the reasons and the paths that led to them.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { failureOf, memoryPath, send } from "./api.js";
import { Chain, countSteps } from "./chain.js";
import { beginOfDay, endOfDay, isPast, readDay, readPastDay } from "./days.js";
import { day, decimal, list, localDay, reasonOf, t, written } from "./i18n.js";
import { askedWords } from "./marks.js";
import { useAction } from "./memory.js";
import { Bones, Busy, Choice, Failed, Icon, IconButton, Menu, Time, TruthPick, speakerOf } from "./parts.js";
import { relevanceOf, whyOf } from "./why.js";

const KINDS = ["fact", "episode", "summary"];
const COUNTS = ["5", "10", "20", "50"];
const DEFAULT_COUNT = "10";
const MISSING = ["vectors", "graph", "extractor"];
// What the arms of `explain` compare.
const COMPARED = { meaning: ["dense", "tokens"], words: ["keyword", "characters"], links: ["graph", "hop"], time: ["date"] };
// The path of one of so many first hits is open.
const BEST_HITS = 3;
// Milliseconds before a search is seen to run.
const BUSY_AFTER = 150;
// So many verdicts on a question are read.
const MOST_VERDICTS = 1000;

/** Returns the question and the filters of an address, in which anything may stand. */
function readQuery({ q = "", kinds = "", top_k: count = "", as_of: asOf = "", day: from = "", truth = "" }) {
  return {
    q: q.trim(),
    kinds: KINDS.includes(kinds) ? kinds : "",
    top_k: /^[1-9]\d{0,2}$/.test(count) ? count : DEFAULT_COUNT,
    as_of: readPastDay(asOf),
    day: readDay(from),
    truth: truth === "both" ? "both" : "now",
  };
}

/** Returns the part of an address that says that memories that are no longer true are shown as well. */
function truthOf({ truth }) {
  return truth === "both" ? truth : "";
}

/** Tells whether a query has no conditions but its words: only such ones are asked again. */
function isPlain(query) {
  return !(query.as_of || query.kinds || query.day || truthOf(query));
}

function addressOfQuery(query) {
  return addressOf("search", "", { ...query, top_k: query.top_k === DEFAULT_COUNT ? "" : query.top_k, truth: truthOf(query) });
}

function bodyOf(query, user) {
  return {
    query: query.q,
    user_id: user,
    kinds: query.kinds || undefined,
    top_k: Number(query.top_k),
    as_of: query.as_of ? endOfDay(query.as_of) : undefined,
    filters: query.day ? { at: { gte: beginOfDay(query.day), lt: beginOfDay(query.day, 1) } } : undefined,
    show_retired: query.truth === "both" || undefined,
    explain: true,
  };
}

/** Returns how many memories of a user are no longer true on a day ("": today), 0 while that is not known. */
function useRetired(user, asOf, isReady) {
  const [n, setNumber] = useState(0);
  useEffect(() => {
    setNumber(0);
    if (!isReady) return;
    const query = { user_id: user, as_of: asOf && endOfDay(asOf), limit: 1 };
    send("GET", "/memories", { query }).then(({ retired = 0 }) => setNumber(retired), () => {});
  }, [user, asOf, isReady]);
  return n;
}

/** Returns what was said of memories as answers to a question, by their ids, and a function that says it or takes it back. */
function useVerdicts(app, q, isReady) {
  const [verdicts, setVerdicts] = useState({});
  useEffect(() => {
    let isCurrent = true;
    setVerdicts({});
    if (!isReady) return undefined;
    send("GET", "/judgements", { query: { user_id: app.user, query: q, limit: MOST_VERDICTS } }).then(({ results }) => {
      const own = results.filter((one) => one.agent_id === null && one.run_id === null);
      if (isCurrent) setVerdicts((said) => ({ ...Object.fromEntries(own.map((one) => [one.memory_id, one.verdict])), ...said }));
    }, () => {});
    return () => void (isCurrent = false);
  }, [q, app.user, isReady]);
  const act = useAction(app);
  const judge = (id, verdict) => act("not_judged", async () => {
    await send("PUT", memoryPath(id, "/judgement"), { body: { query: q, verdict, user_id: app.user } });
    setVerdicts((said) => ({ ...said, [id]: verdict }));
  });
  return [verdicts, judge];
}

/** Says of a hit whether it answers; the same button again takes that back. */
function Verdict({ value, onJudge }) {
  const button = (verdict, icon, label) => html`<${IconButton} icon=${icon} label=${label} aria-pressed=${String(value === verdict)}
    onClick=${() => onJudge(value === verdict ? null : verdict)} />`;
  return html`<span class="verdict" role="group" aria-label=${t("search_verdict")}>
    ${button("right", "check", t("search_right"))}${button("wrong", "x", t("search_wrong"))}</span>`;
}

const NOTHING = { query: null, answer: null, milliseconds: 0, problem: null };

/** Answers the query of an address; the former answer stays until the new one is there. */
function useAnswer(query, user, isReady) {
  const [found, setFound] = useState(NOTHING);
  const [isBusy, setBusy] = useState(isReady);
  const [isSlow, setSlow] = useState(false);
  const round = useRef(0); // the answer to an earlier question is dropped
  const load = useCallback(async () => {
    const mine = (round.current += 1);
    setBusy(isReady);
    if (!isReady) return setFound(NOTHING);
    const timer = setTimeout(() => mine === round.current && setSlow(true), BUSY_AFTER);
    const begin = performance.now();
    let next;
    try {
      const answer = await send("POST", "/search", { body: bodyOf(query, user) });
      next = () => ({ query, answer, milliseconds: Math.round(performance.now() - begin), problem: null });
    } catch (error) {
      const problem = failureOf(error);
      next = (former) => ({ ...former, problem });
    }
    clearTimeout(timer);
    if (mine !== round.current) return undefined;
    setFound(next);
    setBusy(false);
    return setSlow(false);
  }, [JSON.stringify(query), user, isReady]);
  useEffect(() => {
    load();
    return () => void (round.current += 1);
  }, [load]);
  return { ...found, isBusy, isSlow, load };
}

function DayPick({ label, unset, value, max, onChoose }) {
  const choose = ({ target }) => {
    const isBeingTyped = /^0/.test(target.value); // a year of which the first digits are there
    if (!isBeingTyped) onChoose(target.value);
  };
  return html`<label class=${value ? "pick dated on" : "pick dated"}><span>${value ? label : unset}</span>
    <input type="date" aria-label=${label} max=${max} value=${value} class=${value ? "" : "unset"} onChange=${choose} /></label>`;
}

function Filters({ query, change }) {
  const kinds = [{ value: "", label: t("search_all_kinds") }, ...KINDS.map((value) => ({ value, label: t(`kinds_${value}`) }))];
  const counts = [...new Set([...COUNTS, query.top_k])].map((value) => ({ value, label: t("search_top", { n: Number(value) }) }));
  const labelOf = (options, value) => options.find((one) => one.value === value).label;
  const isSet = query.as_of || query.kinds || query.day || query.top_k !== DEFAULT_COUNT || truthOf(query);
  return html`<div class="filters picks">
    <${DayPick} label=${t("search_as_of")} unset=${t("search_today")} value=${query.as_of} max=${localDay(new Date())}
      onChoose=${(value) => change({ as_of: value })} />
    <${Menu} class=${query.kinds ? "pick on" : "pick"} label=${t("kinds")} value=${query.kinds} options=${kinds}
      onChoose=${(value) => change({ kinds: value })} button=${() => html`<${Choice} label=${t("kinds")}>${labelOf(kinds, query.kinds)}<//>`} />
    <${Menu} class=${query.top_k === DEFAULT_COUNT ? "pick" : "pick on"} label=${t("search_count")} value=${query.top_k} options=${counts}
      onChoose=${(value) => change({ top_k: value })} button=${() => html`<${Choice} label=${t("search_count")}>${labelOf(counts, query.top_k)}<//>`} />
    <${DayPick} label=${t("search_day")} unset=${t("search_any_day")} value=${query.day} onChoose=${(value) => change({ day: value })} />
    <${TruthPick} value=${query.truth} onChoose=${(value) => change({ truth: value })} />
    ${isSet && html`<button type="button" class="btn quiet small" onClick=${() => change({ as_of: "", kinds: "", top_k: DEFAULT_COUNT, day: "", truth: "now" })}>
      <${Icon} name="x" /><span>${t("filter_off")}</span></button>`}</div>`;
}

function Score({ hit }) {
  return html`<div class="score"><svg viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true">
      <rect class="tr" width="100" height="4" rx="2" /><rect class="va" width=${Math.round(hit.score * 100)} height="4" rx="2" /></svg>
    <span class="num"><span class="sr">${t("search_score")} </span>${decimal(hit.score)}</span>
    <small class="num">${t("search_relevance")} ${decimal(hit.relevance)}</small>
    <small class="num">${t("search_similarity")} ${decimal(hit.similarity)}</small></div>`;
}

/** Tells whether other memories led to a hit. */
function hasPath({ explain: { path } }) {
  return countSteps(path).memories > 1;
}

/** A link that shows the path to a hit in the graph; a hit without one is shown itself. */
function InGraph({ hit, query }) {
  const { q, as_of: asOf } = query;
  const { path } = hit.explain;
  const ids = path.filter((step) => step.type === "memory").map((step) => step.id);
  const around = path.find((step) => step.type === "entity")?.name;
  const address = hasPath(hit)
    ? addressOf("graph", "", { q, path: ids.join(","), around, as_of: asOf, truth: truthOf(query) })
    : addressOf("graph", hit.id, { around: around ?? hit.id, as_of: asOf, truth: truthOf(query) });
  return html`<a class="btn quiet small" href=${address}>
    <${Icon} name="graph" /><span>${t("search_in_graph")}</span></a>`;
}

function Hit({ hit, place, hits, query, asked, isShown, verdict, onJudge }) {
  const isFirst = place === 0;
  const [isOpen, setOpen] = useState(isShown);
  const { path, part } = hit.explain;
  const { memories, names } = countSteps(path);
  const parts = [t("search_memories", { n: memories }), names && t("search_names", { n: names })].filter(Boolean).join(t("why_comma"));
  const text = part ?? hit.memory;
  const who = speakerOf(hit);
  const isOver = isPast(hit, query.as_of ? new Date(endOfDay(query.as_of)) : undefined);
  return html`<li class="hit"><span class="place num">${place + 1}</span>
    <p class="read words" ...${written(text)}><a href=${addressOf("memories", hit.id, { truth: isOver ? "both" : "" })}>${text}</a></p><${Score} hit=${hit} />
    <p class="byline">${who && html`<b ...${written(who)}>${who}</b> · `}<${Time} at=${hit.at} as="day" />
      ${part && html` · <span>${t("search_part")}</span>`}
      ${hit.kind !== "episode" && html` <span class=${`tag ${hit.kind}`}>${t(hit.kind)}</span>`}
      ${isOver && html` <span class="tag line">${t("truth_past")}</span>`}</p>
    <div class="why"><span>${whyOf(hit, place, hits, asked)} <small class="faint">${relevanceOf(hit)}</small></span>
      ${memories > 1 && !isFirst && html`<button type="button" class="btn quiet small" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>
        <${Icon} name="thread" /><span>${isOpen ? t("search_path_off") : t("search_path", { parts })}</span></button>`}
      ${memories > 1 && isOpen && !isShown && html`<${InGraph} hit=${hit} query=${query} />`}
      ${onJudge && html`<${Verdict} value=${verdict} onJudge=${onJudge} />`}</div>
    ${memories > 1 && isOpen && html`<div class="way">
      <${Chain} path=${path} question=${query.q} user=${hit.user_id} isAnswer=${isFirst} appears /></div>`}</li>`;
}

/** Returns the hit whose path is shown without being asked for: the first one with a path among the best; without one the first hit. */
function shownHit(hits) {
  return hits.slice(0, BEST_HITS).find(hasPath) ?? hits[0];
}

function Said({ hits, milliseconds, query }) {
  const arms = new Set(hits.flatMap((hit) => Object.keys(hit.explain.arms)));
  const compared = Object.keys(COMPARED).filter((name) => COMPARED[name].some((arm) => arms.has(arm)));
  return html`<p class="said"><span class="num" role="status">${t("search_hits", { n: hits.length, ms: milliseconds })}</span>
    ${compared.length > 0 && html`<span class="faint">${t("search_arms", { arms: list(compared.map((name) => t(`search_by_${name}`))) })}</span>`}
    <${InGraph} hit=${hits.find(hasPath) ?? hits[0]} query=${query} /></p>`;
}

function Answer({ found, isStale, retired, onToday, onAll, verdicts, judge }) {
  const { query, answer, milliseconds } = found;
  const asked = askedWords(query.q);
  const hits = answer.results;
  const hasMore = retired > 0 && query.truth === "now"; // memories that are no longer true
  const missing = MISSING.filter((name) => answer.degraded?.includes(name));
  return html`<div class=${isStale ? "answer stale" : "answer"} aria-busy=${isStale ? "true" : null}>
    ${query.as_of && html`<div class="say"><${Icon} name="clock" /><span>${t("search_past", { day: day(`${query.as_of}T12:00`) })}</span>
      <button type="button" class="btn small" onClick=${onToday}>${t("search_back")}</button></div>`}
    ${missing.map((name) => html`<div class="say warn" role="status" key=${name}><${Icon} name="warn" /><span>${t(`search_without_${name}`)}</span></div>`)}
    ${hits.length === 0 && html`<div class="empty"><p class="read" role="status">${t(hasMore ? "search_none_now" : "search_none", { q: query.q })}</p>
      <p class="soft">${t("search_none_do")}</p></div>`}
    ${hits.length > 0 && html`<${Said} hits=${hits} milliseconds=${milliseconds} query=${query} />
      <ol class="hits">${hits.map((hit, place) => html`<${Hit} key=${`${place} ${hit.id} ${JSON.stringify(query)}`} hit=${hit} place=${place} hits=${hits}
        query=${query} asked=${asked} isShown=${hit === shownHit(hits)} verdict=${verdicts[hit.id]} onJudge=${judge && ((verdict) => judge(hit.id, verdict))} />`)}</ol>`}
    ${hasMore && html`<p class="unsearched"><span>${t("search_retired", { n: retired })}</span>
      <button type="button" class="btn small" onClick=${onAll}>${t("search_retired_do")}</button></p>`}</div>`;
}

/** The field of the question. Its text is kept here, so that typing does not draw the hits again. */
function Question({ q, field, isBusy, onAsk }) {
  const [text, setText] = useState(q);
  useLayoutEffect(() => setText(q), [q]); // an effect after the paint would drop what was typed by then
  const ask = (event) => {
    event.preventDefault();
    if (text.trim()) onAsk(text.trim());
    else field.current.focus();
  };
  return html`<form class="query" role="search" onSubmit=${ask}><${Icon} name="find" />
    <input class="field" ref=${field} type="text" enterkeyhint="search" autocomplete="off" aria-label=${t("search_question")}
      placeholder=${t("search_hint")} ...${written(text)} value=${text} onInput=${(event) => setText(event.target.value)} />
    <${Busy} class="primary" busy=${isBusy} label=${t("search")} busyLabel=${t("search_busy")} onClick=${ask} /></form>`;
}

/** `query` is that of the address: q, kinds, top_k, as_of and day (YYYY-MM-DD). */
export function Search({ app, query: given }) {
  const query = readQuery(given);
  const { problem, isBusy, isSlow, load, ...found } = useAnswer(query, app.user, Boolean(query.q) && !app.seesAll);
  const retired = useRetired(app.user, query.as_of, Boolean(query.q) && !app.seesAll);
  const [verdicts, judge] = useVerdicts(app, query.q, Boolean(found.answer) && isPlain(query));
  const [field, root] = [useRef(), useRef()];
  const change = (values) => {
    const address = addressOfQuery({ ...query, ...values });
    if (address === addressOfQuery(query)) load();
    else location.hash = address;
  };
  const step = (by) => {
    const links = [...root.current.querySelectorAll(".hit > .words a")];
    const place = links.findIndex((one) => one.closest(".hit").contains(document.activeElement));
    links[place < 0 ? 0 : place + by]?.focus();
  };
  const focusField = () => {
    field.current.focus();
    field.current.select();
  };
  useLayoutEffect(() => app.keys({ "/": focusField, j: () => step(1), k: () => step(-1), Escape: () => document.activeElement?.blur() }));
  return html`<section class="view" ref=${root}><div class="page">
    <div class="head"><div><h1>${t("search")}</h1></div></div>
    <${Question} q=${query.q} field=${field} isBusy=${isSlow} onAsk=${(q) => change({ q })} />
    <${Filters} query=${query} change=${change} />
    ${problem && html`<${Failed} error=${problem} onRetry=${load}>${t("search_failed", { reason: reasonOf(problem) })}<//>`}
    ${app.seesAll && html`<div class="empty"><p class="read">${t("search_user")}</p></div>`}
    ${!query.q && !app.seesAll && html`<div class="empty"><p class="read">${t("search_first")}</p><p class="soft">${t("search_first_do")}</p></div>`}
    ${isBusy && !found.answer && html`<${Bones} rows=${4} />`}
    ${found.answer && html`<${Answer} found=${found} isStale=${isBusy} retired=${retired} onToday=${() => change({ as_of: "" })}
      onAll=${() => change({ truth: "both" })} verdicts=${verdicts} judge=${isPlain(found.query) && !isBusy ? judge : null} />`}
  </div></section>`;
}
