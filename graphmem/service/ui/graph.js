// The view of the graph: a picture around a name or along a path, a slider for the day, and the panel that says it in words.

import { html, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { entityPath, failureOf, send } from "./api.js";
import { beginOfDay, endOfDay, readPastDay } from "./days.js";
import { pathThrough, readGraph } from "./graph_data.js";
import { Panel } from "./graph_panel.js";
import { Ruler } from "./graph_ruler.js";
import { day, number, reasonOf, t, typeName, TYPES, written } from "./i18n.js";
import { Failed, Icon, IconButton, TruthPick } from "./parts.js";

const HOPS = [1, 2, 3];
const USUAL_HOPS = 2;
// Memories that are drawn without a name in the middle, and those among which a name's surroundings are looked for.
const NEWEST = 300;
const ALL = 10_000;
const MAX_PATH = 10;
// Characters of a name that the service takes.
const MAX_NAME = 512;
const MAX_ENTITIES = 1000;

/** Returns what the address of the view says; anything may stand in it. */
function readQuery({ around = "", hops, as_of: asOf = "", path = "", q = "", all = "", truth = "" }) {
  const wanted = HOPS.includes(Number(hops)) ? Number(hops) : USUAL_HOPS;
  const ids = path.split(",").map((one) => one.trim()).filter((one) => one && one.length <= MAX_NAME);
  return {
    around: around.trim().slice(0, MAX_NAME), hops: wanted, asOf: readPastDay(asOf), path: ids.slice(0, MAX_PATH), q, isAll: Boolean(all),
    hasPast: truth === "both",
  };
}

/** Loads the graph that the address asks for; the one before stays until it is there. `centre` is the id of the node in its middle,
 * `stored` the number of memories of which the newest are drawn if there is none, `retired` of those that are no longer true. */
function useGraph(app, { around, hops, asOf, path, isAll, hasPast }) {
  const [state, setState] = useState({ graph: null, centre: "", stored: 0, retired: 0, isBusy: true, problem: null });
  const round = useRef(0); // the answer to an earlier question is dropped
  const way = path.join(",");
  const load = useCallback(async () => {
    const mine = (round.current += 1);
    setState((now) => ({ ...now, isBusy: true, problem: null }));
    const scope = { user_id: app.user, as_of: asOf && endOfDay(asOf), show_retired: hasPast || undefined };
    const centres = [...(around ? [around] : []), ...path];
    const read = (centre) => send("GET", "/graph", { query: { ...scope, around: centre, hops, limit: ALL } });
    try {
      // With source messages and summaries, as the graph has them.
      const [{ total, retired = 0 }, entities, ...answers] = await Promise.all([
        send("GET", "/memories", { query: { ...scope, kinds: "fact,episode,summary", limit: 1 } }),
        send("GET", "/graph/entities", { query: { user_id: app.user, show_retired: hasPast || undefined, limit: MAX_ENTITIES } }),
        ...(centres.length ? centres.map(read) : [send("GET", "/graph", { query: { ...scope, limit: isAll ? ALL : NEWEST } })]),
      ]);
      const centre = around && (await centreOf(answers[0], around, scope));
      const graph = readGraph(answers, entities, [...path, centre], asOf ? new Date(endOfDay(asOf)) : new Date());
      if (mine === round.current) setState({ graph, centre, stored: centres.length ? 0 : total, retired, isBusy: false, problem: null });
    } catch (error) {
      const problem = failureOf(error);
      if (mine === round.current) setState((now) => ({ ...now, isBusy: false, problem }));
    }
  }, [app.user, around, hops, asOf, way, isAll, hasPast]);
  useEffect(() => void (app.seesAll || load()), [load]);
  return [state, load];
}

/** Returns the id of the node that `around` means, "" if there is none: the id of a memory, or any name of an entity. */
async function centreOf({ nodes }, around, scope) {
  if (!nodes.length) return "";
  if (nodes.some((node) => node.id === around)) return around;
  const entity = await send("GET", entityPath(around), { query: { ...scope, limit: 1 } });
  const ids = [entity, ...entity.aliases].map((one) => `entity:${one.key}`);
  return nodes.find((node) => ids.includes(node.id))?.id ?? "";
}

/** Opens the canvas once its module is there; returns a ref to it. */
function useCanvas(element, handlers, isWanted) {
  const canvas = useRef(null);
  const latest = useRef(handlers);
  latest.current = handlers;
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (!isWanted) return undefined;
    let isGone = false;
    import("./graph_canvas.js").then(({ openCanvas }) => {
      if (isGone) return;
      canvas.current = openCanvas(element.current, {
        onSelect: (id) => latest.current.onSelect(id),
        onMove: (node) => latest.current.onMove(node),
      });
      setOpen(true);
    });
    return () => {
      isGone = true;
      canvas.current?.close();
      canvas.current = null;
      setOpen(false);
    };
  }, [isWanted]);
  return [canvas, isOpen];
}

/** Elements of which the canvas reads the colours. */
function Inks() {
  const names = ["ink-paper", "ink-ink", "ink-ink-3", "ink-edge", "ink-accent", ...Object.keys(TYPES).map((type) => type.toLowerCase())];
  return html`<span class="inks" hidden>${names.map((name) => html`<i key=${name} class=${name} />`)}</span>`;
}

function Legend({ graph, hidden, onToggle }) {
  const counts = new Map();
  for (const { group } of graph.nodes.values()) counts.set(group, (counts.get(group) ?? 0) + 1);
  const groups = [...Object.keys(TYPES).map((type) => type.toLowerCase()), "memory"].filter((group) => counts.has(group));
  const nameOf = (group) => (group === "memory" ? t("graph_memory") : typeName(group[0].toUpperCase() + group.slice(1)));
  return html`<div class="legend" role="group" aria-label=${t("graph_types")}>${groups.map((group) => html`<button type="button" key=${group}
    class=${group} aria-pressed=${String(!hidden.has(group))} onClick=${() => onToggle(group)}>
    ${group === "memory" ? html`<span class="slip" />` : html`<svg class=${`t ${group}`} aria-hidden="true"><use href=${`#t-${group}`} /></svg>`}
    <span>${nameOf(group)}</span><span class="count num">${counts.get(group)}</span></button>`)}</div>`;
}

function Top({ title, hint, around, hops, hasMiddle, names, field, onAround, onHops, children }) {
  const [text, setText] = useState(around);
  useLayoutEffect(() => setText(around), [around]);
  const onKeyDown = (event) => {
    if (event.key === "Enter") onAround(text.trim());
  };
  return html`<div class="top"><h1 ...${written(title)}>${title}</h1>
    <input class="field" type="search" dir="auto" ref=${field} aria-label=${t("graph_around")} placeholder=${hint} value=${text} list="graph-names"
      onInput=${(event) => setText(event.target.value)} onKeyDown=${onKeyDown} />
    <datalist id="graph-names">${names.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
    ${hasMiddle && html`<div class="seg" role="group" aria-label=${t("graph_hops")}>${HOPS.map((one) => html`<button type="button" key=${one}
      aria-pressed=${String(one === hops)} onClick=${() => onHops(one)}>${one === 1 ? t("graph_hop_1") : one}</button>`)}</div>`}
    ${children}</div>`;
}

/** Returns the ids of what stands out: the path, and the selected node with its neighbours; null if nothing does. */
function litOf(graph, selected, route) {
  if (!selected && !route.length) return null;
  return new Set([...route, ...(selected ? [selected.id, ...graph.near.get(selected.id)] : [])]);
}

function pictureLabel(graph, hidden, centre) {
  const shown = [...graph.nodes.values()].filter((node) => !hidden.has(node.group));
  const names = shown.filter((node) => node.isName).length;
  const values = { names: t("graph_names", { n: names }), memories: t("graph_memories", { n: shown.length - names }) };
  return centre?.isName ? t("graph_picture", { ...values, name: centre.label }) : t("graph_picture_all", values);
}

function Picture({ graph, selected, centre, route, hidden, onSelect, onToggle, children }) {
  const element = useRef();
  const [moved, setMoved] = useState("");
  const handlers = { onSelect, onMove: (node) => setMoved(`${node.label}, ${typeName(node.type)}`) };
  const [canvas, isOpen] = useCanvas(element, handlers, graph !== null);
  const lit = useMemo(() => graph && litOf(graph, selected, route), [graph, selected, route]);
  const draw = () => canvas.current?.show({ graph, lit, selected: selected?.id ?? "", route, hidden });
  useLayoutEffect(() => void draw()); // the theme may have changed as well
  useEffect(() => {
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const later = () => draw();
    scheme.addEventListener("change", later);
    return () => scheme.removeEventListener("change", later);
  });
  useEffect(() => {
    const onKeyDown = (event) => {
      const { target, key } = event;
      const isHere = target === document.body || target.id === "main" || target.closest(".net, .named");
      if (!isHere || event.ctrlKey || event.metaKey || event.altKey || !canvas.current) return;
      if (key.startsWith("Arrow")) canvas.current.move(key);
      else if (key === "Enter") canvas.current.choose();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKeyDown);
    return () => removeEventListener("keydown", onKeyDown);
  }, []);
  const actions = { closer: () => canvas.current?.zoom(1.4), further: () => canvas.current?.zoom(1 / 1.4), fit: () => canvas.current?.fit() };
  return html`<div class="canvas"><${Inks} />
    <div class="net" ref=${element} role="img" tabindex="0" data-open=${isOpen ? "true" : null} aria-label=${graph ? pictureLabel(graph, hidden, centre) : t("graph")} />
    <p class="heard" role="status">${moved}</p>
    ${children}
    ${graph && html`<${Legend} graph=${graph} hidden=${hidden} onToggle=${onToggle} />`}
    <${Zoom} ...${actions} /></div>`;
}

function Zoom({ closer, further, fit }) {
  return html`<div class="zoom"><${IconButton} icon="plus" label=${t("graph_closer")} onClick=${closer} />
    <${IconButton} icon="minus" label=${t("graph_further")} onClick=${further} /><${IconButton} icon="fit" label=${t("graph_fit")} onClick=${fit} /></div>`;
}

/**
 * `id` is that of the selected node, "" if it is the one in the middle; `query` has around, hops, as_of, path and q.
 *
 * `app.file` is undefined on the page of the service. In a file that holds the graph alone it has the `title` and the `buttons` of the top: there is no other
 * view, nothing can be changed, and memories that are no longer true are drawn if the file has them.
 */
export function Graph({ app, id, query }) {
  const wanted = readQuery(app.file ? { ...query, as_of: "", truth: "both" } : query);
  const { around, hops, asOf, path } = wanted;
  const [{ graph, centre, stored, retired, isBusy, problem }, load] = useGraph(app, wanted);
  const truth = wanted.hasPast ? "both" : "now";
  const [hidden, setHidden] = useState(new Set());
  const [isClosed, setClosed] = useState(false);
  const [field, root] = [useRef(), useRef()];
  useLayoutEffect(() => setClosed(false), [around, id]);
  const { steps, route } = useMemo(() => (graph ? pathThrough(graph, path) : { steps: [], route: [] }), [graph, path.join(",")]);
  const selected = (graph && !isClosed && graph.find(id || centre)) || null;
  const addressTo = (next, changes = {}) => addressOf("graph", next, { ...query, ...changes });
  const go = (...where) => {
    location.hash = addressTo(...where);
  };
  const select = (next) => {
    setClosed(false);
    go(next);
  };
  const setDay = (wantedDay) => {
    if (asOf && wantedDay) location.replace(addressTo(id, { as_of: wantedDay })); // from one past day to another: back leads to today
    else go(id, { as_of: wantedDay });
  };
  const close = () => {
    setClosed(true);
    if (id) go("");
    root.current.querySelector(".net").focus({ preventScroll: true });
  };
  const toggle = (group) => setHidden((now) => new Set(now.has(group) ? [...now].filter((one) => one !== group) : [...now, group]));
  const press = (name) => () => root.current.querySelector(`.zoom .btn:nth-child(${name})`).click();
  useLayoutEffect(() => app.keys({
    "/": () => field.current.focus(), "+": press(1), "=": press(1), "-": press(2), 0: press(3), ...(selected ? { Escape: close } : {}),
  }));
  if (app.seesAll) {
    return html`<section class="view"><div class="page"><p class="read">${t("user_first")}</p><p class="soft">${t("user_choose")}</p></div></section>`;
  }
  const setTruth = (value) => go(id, { truth: value === "now" ? "" : value });
  const hasMore = retired > 0 && !wanted.hasPast; // memories that are no longer true
  const drawn = graph ? [...graph.nodes.values()].filter((node) => !node.isName).length : 0;
  const isEmpty = graph && !isBusy && !graph.nodes.size;
  return html`<section class="view" ref=${root}><div class="atlas">
    <div class=${isBusy && graph ? "stage stale" : "stage"}>
      <${Top} title=${app.file?.title ?? t("graph")} hint=${t(app.file ? "graph_around_words" : "graph_around_hint")} around=${around} hops=${hops}
        hasMiddle=${Boolean(around || path.length)} names=${graph?.entities.map((one) => one.name) ?? []} field=${field}
        onHops=${(n) => go(id, { hops: n === USUAL_HOPS ? "" : n })}
        onAround=${(name) => (name === around ? load() : go("", { around: name, path: "", q: "", all: "" }))}>
        ${app.file ? app.file.buttons : html`<${TruthPick} value=${truth} onChoose=${setTruth} />`}<//>
      <${Picture} graph=${graph} selected=${selected} centre=${graph?.find(centre)} route=${route} hidden=${hidden} onSelect=${select} onToggle=${toggle}>
        <div class="notes">
          ${asOf && html`<div class="say"><${Icon} name="clock" /><span>${t("graph_past", { day: day(beginOfDay(asOf)) })}</span>
            <button type="button" class="btn small" onClick=${() => setDay("")}>${t("graph_back")}</button></div>`}
          ${problem && html`<${Failed} error=${problem} onRetry=${load}>${t("graph_not_loaded", { reason: reasonOf(problem) })}<//>`}
          ${stored > NEWEST && !wanted.isAll && html`<div class="say"><span>${t("graph_newest", { n: drawn, total: number(stored) })}</span>
            <button type="button" class="btn small" onClick=${() => go(id, { all: 1 })}>${t("graph_all")}</button></div>`}
          ${graph && graph.total > graph.nodes.size && html`<div class="say"><span>${t("graph_cut", { n: graph.nodes.size, total: graph.total })}</span></div>`}
          ${hasMore && isEmpty && html`<div class="say"><span>${t("graph_retired", { n: retired })}</span>
            <button type="button" class="btn small" onClick=${() => setTruth("both")}>${t("graph_retired_do")}</button></div>`}
          ${isEmpty && html`<div class="empty"><p class="read">${around ? t(hasMore ? "graph_nobody_now" : "graph_nobody", { name: around })
            : t(hasMore ? "none_now" : "graph_empty")}</p>
            ${!hasMore && html`<p class="soft">${t(around ? "graph_nobody_do" : "graph_empty_do")}</p>`}</div>`}
        </div><//>
      ${!app.file && html`<${Ruler} app=${app} asOf=${asOf} truth=${truth} onChange=${setDay} />`}
    </div>
    <${Panel} app=${app} graph=${graph} selected=${selected} isMissing=${Boolean(id && graph && !isBusy && !isClosed && !selected)}
      asOf=${asOf} hasPast=${wanted.hasPast} retired=${retired} steps=${steps} path=${path} question=${wanted.q} query=${query} onClose=${close} onChanged=${load}
      onClearPath=${() => go(id, { path: "", q: "" })} />
  </div></section>`;
}
