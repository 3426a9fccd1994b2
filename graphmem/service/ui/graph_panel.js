// The panel of the graph: what is selected, in words, and the names that can be changed there.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { entityPath, failureOf, send } from "./api.js";
import { Chain } from "./chain.js";
import { endOfDay, isPast } from "./days.js";
import { ranked } from "./graph_data.js";
import { nodes, number, reasonOf, t, typeName, written } from "./i18n.js";
import { Bones, Busy, Chip, Failed, Icon, IconButton, Menu, RequestId, Time, speakerOf, Who } from "./parts.js";

const MAX_MEMORIES = 1000;
const [NAMES, MEMORIES] = [40, 8];

/** Returns a function that draws a line of a list of memories; `memory` is a node of the graph or a record. */
const quoteTo = (memoryHref) => (memory) => html`<div class="quote" key=${memory.id}><${Who} record=${memory} /><div><p class="read" ...${written(memory.memory)}>
    <a href=${memoryHref(memory)}>${memory.memory}</a></p><${Time} at=${memory.at} />
    ${memory.isPast && html` <span class="tag line">${t("truth_past")}</span>`}</div></div>`;

/** A part with a list, of which the first `some` are shown until the rest is asked for. */
function Listed({ title, items, some, class: classes, draw }) {
  const [isWhole, setWhole] = useState(false);
  if (!items.length) return null;
  const shown = isWhole ? items : items.slice(0, some);
  return html`<section class="part"><h2><span>${title}</span> <small class="num">${items.length}</small></h2><div class=${classes}>${shown.map(draw)}
    ${shown.length < items.length && html`<button type="button" class="btn quiet small" onClick=${() => setWhole(true)}>
      <span>${t("graph_more", { n: items.length - shown.length })}</span></button>`}</div></section>`;
}

function PathPart({ steps, path, question, app, onClear }) {
  if (!path.length) return null;
  return html`<section class="part"><h2><span>${t("graph_path")}</span><button type="button" class="btn quiet small" onClick=${onClear}>
      <span>${t("graph_clear")}</span></button></h2>
    ${steps.length ? html`<${Chain} path=${steps} question=${question} user=${app.user} isAnswer short />` : html`<p class="soft">${t("graph_path_gone")}</p>`}</section>`;
}

function Rename({ name, onSave, onLeave }) {
  const [draft, setDraft] = useState(name);
  const [state, setState] = useState({ isBusy: false, problem: null });
  const field = useRef();
  useLayoutEffect(() => field.current.select(), []);
  const isMissing = !draft.trim();
  const save = async () => {
    if (state.isBusy || isMissing) return;
    if (draft.trim() === name) return onLeave();
    setState({ isBusy: true, problem: null });
    try {
      await onSave(draft.trim());
    } catch (error) {
      setState({ isBusy: false, problem: failureOf(error) });
      field.current?.focus();
    }
  };
  const onKeyDown = (event) => {
    if (event.key === "Enter") save();
    else if (event.key === "Escape") onLeave();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="rename"><input class="field read" dir="auto" ref=${field} aria-label=${t("graph_new_name")} value=${draft} maxlength="256"
      aria-invalid=${state.problem ? "true" : null} aria-describedby=${state.problem ? "rename-problem" : null}
      onInput=${(event) => setDraft(event.target.value)} onKeyDown=${onKeyDown} />
    ${state.problem && html`<p class="hint bad" id="rename-problem" role="alert">${t("graph_not_done", { reason: reasonOf(state.problem) })}<${RequestId} error=${state.problem} /></p>`}
    <div class="acts"><${Busy} class="primary" busy=${state.isBusy} disabled=${state.isBusy || isMissing} title=${isMissing ? t("graph_name_first") : null}
        label=${t("graph_save")} busyLabel=${t("graph_renaming")} onClick=${save} />
      <button type="button" class="btn quiet" onClick=${onLeave}>${t("graph_keep")}</button></div></div>`;
}

/** Loads an entity by the key of its node; changes it. */
function useEntity(app, key, asOf, hasPast, graph, onChanged) {
  const [state, setState] = useState({ entity: null, error: null });
  const round = useRef(0);
  const scope = { user_id: app.user };
  const load = useCallback(async () => {
    const mine = (round.current += 1);
    try {
      const query = { ...scope, limit: MAX_MEMORIES, as_of: asOf && endOfDay(asOf), show_retired: hasPast || undefined };
      const entity = await send("GET", entityPath(key), { query });
      if (mine === round.current) setState({ entity, error: null });
    } catch (failed) {
      const error = failureOf(failed);
      if (mine === round.current) setState({ entity: null, error });
    }
  }, [app.user, key, asOf, hasPast]);
  useEffect(() => void load(), [load, graph]); // a graph that was loaded anew may have come after a change
  const rename = (name) => send("PATCH", entityPath(key), { query: scope, body: { name } });
  const link = (method, a, b) => send(method, "/graph/aliases", { body: { ...scope, a, b } });
  // A change of names is taken back by its opposite.
  const change = async (act, takeBack, text) => {
    await act();
    const undo = async () => {
      await takeBack();
      await onChanged();
    };
    app.changed({ takeBack: undo }, text);
    await onChanged();
  };
  return { ...state, load, rename, link, change };
}

function SameAs({ graph, name, onChoose }) {
  const options = graph.entities.filter((one) => one.name !== name).map((one) => ({ value: one.name, label: one.name, count: one.memories }));
  return html`<${Menu} class="btn quiet" label=${t("graph_same")} options=${options} onChoose=${onChoose}
    typed=${(text) => t("graph_same_typed", { name: text })} button=${() => html`<${Icon} name="same" /><span>${t("graph_same")}</span>`} />`;
}

function Name({ app, node, graph, asOf, hasPast, hrefOf, drawQuote, heading, children, onChanged }) {
  const { entity, error, load, rename, link, change } = useEntity(app, node.key, asOf, hasPast, graph, onChanged);
  const [isRenaming, setRenaming] = useState(false);
  const [problem, setProblem] = useState(null);
  const canChange = entity && !asOf && !app.file;
  const attempt = async (...what) => {
    setProblem(null);
    try {
      await change(...what);
    } catch (failed) {
      setProblem(failureOf(failed));
    }
  };
  const saveName = async (name) => {
    const former = entity.name;
    await change(() => rename(name), () => rename(former), () => t("graph_renamed", { name }));
    setRenaming(false);
  };
  const join = (other) => attempt(
    () => link("POST", entity.key, other), () => link("DELETE", entity.key, other), () => t("graph_joined", { name: entity.name, other }),
  );
  const separate = (alias) => {
    // A name may be linked to any of the others.
    const partners = graph.sameAs.filter((pair) => pair.includes(alias.key)).map(([a, b]) => (a === alias.key ? b : a));
    const each = (method) => async () => {
      for (const partner of partners.length ? partners : [entity.key]) await link(method, partner, alias.key);
    };
    attempt(each("DELETE"), each("POST"), () => t("graph_separated", { name: entity.name, other: alias.name }));
  };
  const moment = asOf ? new Date(endOfDay(asOf)) : new Date();
  const memories = entity?.memories.map((one) => ({ ...one, isPast: isPast(one, moment) })) ?? [];
  const over = memories.filter((one) => one.isPast).length;
  const own = entity ? new Set([entity.name, ...entity.aliases.map((one) => one.name)]) : new Set();
  const earliest = entity?.memories.reduce((first, one) => (one.at < first ? one.at : first), entity.memories[0]?.at ?? "");
  return html`
    ${isRenaming && canChange ? html`<${Rename} name=${entity.name} onSave=${saveName} onLeave=${() => setRenaming(false)} />`
      : html`<h2 class="named" tabindex="-1" ref=${heading}><svg class=${`t ${node.group}`} role="img" aria-label=${typeName(node.type)}>
        <use href=${`#t-${node.group}`} /></svg><span ...${written(node.label)}>${node.label}</span></h2>`}
    ${!entity && !error && html`<${Bones} rows=${2} />`}
    ${error && html`<${Failed} error=${error} onRetry=${load}>${t("graph_not_loaded", { reason: reasonOf(error) })}<//>`}
    ${entity?.memories.length > 0 && html`<p class="byline">${nodes("graph_named", { n: entity.memories.length, when: html`<${Time} at=${earliest} as="day" />` })}${over > 0
      && html` ${t("graph_named_past", { n: over })}`}</p>`}
    ${canChange && !isRenaming && html`<div class="acts"><button type="button" class="btn" onClick=${() => setRenaming(true)}>
      <${Icon} name="edit" /><span>${t("graph_rename")}</span></button><${SameAs} graph=${graph} name=${entity.name} onChoose=${join} /></div>`}
    ${problem && html`<p class="hint bad" role="alert">${t("graph_not_done", { reason: reasonOf(problem) })}<${RequestId} error=${problem} /></p>`}
    ${children}
    ${entity && html`<${Relations} relations=${entity.relations} own=${own} hrefOf=${hrefOf} graph=${graph} />
      ${entity.aliases.length > 0 && html`<section class="part"><h2><span>${t("graph_aliases")}</span></h2><div class="chips">${entity.aliases.map((alias) => html`
        <span class="alias" key=${alias.key}><${Chip} name=${alias.name} type=${node.type} href=${hrefOf({ label: alias.name })} />
          ${canChange && html`<button type="button" class="btn quiet small" aria-label=${t("graph_separate_name", { name: alias.name })} onClick=${() => separate(alias)}>
            <${Icon} name="undo" /><span>${t("graph_separate")}</span></button>`}</span>`)}</div></section>`}
      <${Listed} title=${t("graph_said_in")} items=${memories} some=${MEMORIES} draw=${drawQuote} />`}`;
}

/** Relations of the entity with these names: "predicate →" leads to another, "predicate ←" comes from there. */
function Relations({ relations, own, graph, hrefOf }) {
  if (!relations.length) return null;
  return html`<section class="part"><h2><span>${t("graph_relations")}</span></h2><dl class="rel">${relations.map((one) => {
    const isOut = own.has(one.source);
    const name = isOut ? one.target : one.source;
    const other = graph.named(name) ?? { label: name, type: "Other" };
    return html`<dt class=${isOut ? "" : "from"} dir="auto">${one.relationship}</dt><dd><${Chip} name=${other.label} type=${other.type} href=${hrefOf(other)} /></dd>`;
  })}</dl></section>`;
}

function Slip({ app, node, graph, hrefOf, memoryHref, drawQuote, heading, children }) {
  const who = speakerOf(node);
  const near = [...graph.near.get(node.id)].map((id) => graph.nodes.get(id));
  const beside = (end, other) => graph.links.filter((link) => link.kind === "NEXT" && link[end] === node.id).map((link) => graph.nodes.get(link[other]));
  const quotes = (title, some) => html`<${Listed} title=${title} items=${some} some=${MEMORIES} draw=${drawQuote} />`;
  return html`<p class="read words named" tabindex="-1" ref=${heading} ...${written(node.memory)}>${node.memory}</p>
    <p class="byline">${who && html`<b ...${written(who)}>${who}</b> `}<${Time} at=${node.at} /></p>
    ${node.isPast && html`<p class="byline">${nodes("retired", { when: html`<${Time} at=${node.valid_to} as="day" />` })}</p>`}
    ${!app.file && html`<div class="acts"><a class="btn" href=${memoryHref(node)}>${t("graph_open")}</a></div>`}
    ${children}
    <${Listed} title=${t("graph_all_names")} class="chips" items=${near.filter((one) => one.isName)} some=${NAMES} draw=${(one) => html`<${Chip} key=${one.id}
      name=${one.label} type=${one.type} href=${hrefOf(one)} />`} />
    ${quotes(t("graph_before"), beside("target", "source"))}
    ${quotes(t("graph_after"), beside("source", "target"))}`;
}

function Overview({ graph, retired, hasPast, hrefOf, drawQuote, heading, children }) {
  const { names, memories } = ranked(graph.nodes);
  const over = hasPast ? memories.filter((one) => one.isPast).length : retired;
  const words = !over ? "graph_memories" : hasPast ? "total_both" : "total_and_past";
  const hasDerived = memories.some((one) => one.kind !== "episode"); // the list of memories has no source messages, nor summaries unless asked for
  return html`<h2 class="named" tabindex="-1" ref=${heading}>${t("graph_overview")}</h2>
    <p class="byline num">${t("graph_names", { n: names.length })} · ${t(words, { n: memories.length, retired: number(over) })}${hasDerived && html`<br />
      <span class="faint">${t("graph_derived")}</span>`}</p>
    ${children}
    <${Listed} title=${t("graph_all_names")} class="chips" items=${names} some=${NAMES} draw=${(one) => html`<${Chip} key=${one.id} name=${one.label}
      type=${one.type} href=${hrefOf(one)} />`} />
    <${Listed} title=${t("graph_all_memories")} items=${memories} some=${MEMORIES} draw=${drawQuote} />`;
}

/** `selected` is a node of the graph or null; `steps` are those of the path over `path`; `isMissing`: the selected node is not in this graph. */
export function Panel({ app, graph, selected, isMissing, asOf, hasPast, retired, steps, path, question, query, onClose, onChanged, onClearPath }) {
  const heading = useRef();
  const former = useRef(null);
  useLayoutEffect(() => {
    if (former.current !== null && selected && former.current !== selected.id) heading.current?.focus({ preventScroll: true });
    if (graph) former.current = selected?.id ?? "";
  }, [selected?.id, graph]);
  // A node of this graph is selected in it; around another name, another graph is drawn.
  const hrefOf = ({ id, label }) => (id ? addressOf("graph", id, query) : addressOf("graph", "", { ...query, around: label, path: "", q: "" }));
  const pathPart = html`<${PathPart} steps=${steps} path=${path} question=${question} app=${app} onClear=${onClearPath} />`;
  // A memory is opened in its view; a file has none, and shows it in the graph.
  const memoryHref = app.file ? ({ id }) => hrefOf(graph.nodes.get(id) ?? { label: id })
    : ({ id, isPast: hasEnded }) => addressOf("memories", id, { truth: hasEnded ? "both" : "" });
  const given = { app, graph, hrefOf, memoryHref, drawQuote: quoteTo(memoryHref), heading };
  return html`<aside class="panel" aria-label=${t("graph_panel")}>
    <header>${selected && html`<span class=${selected.isName ? "tag" : `tag ${selected.kind}`}>${selected.isName ? typeName(selected.type) : t(selected.kind)}</span>
      <nav><${IconButton} icon="x" label=${t("close_panel")} onClick=${onClose} /></nav>`}</header>
    <div class="leaf">
      ${!graph && html`<${Bones} rows=${3} />`}
      ${isMissing && html`<p class="soft">${t("graph_not_here")}</p>`}
      ${graph && (selected?.isName ? html`<${Name} key=${selected.id} node=${selected} asOf=${asOf} hasPast=${hasPast} onChanged=${onChanged} ...${given}>${pathPart}<//>`
        : selected ? html`<${Slip} key=${selected.id} node=${selected} ...${given}>${pathPart}<//>`
          : html`<${Overview} key="all" retired=${retired} hasPast=${hasPast} ...${given}>${pathPart}<//>`)}
    </div></aside>`;
}
