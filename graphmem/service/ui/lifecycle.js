// The view of the lifecycle of one user's memories: how many are kept and fade, what is forgotten, and cycles with what they do.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { failureOf, memoryPath, send } from "./api.js";
import { Erase } from "./erase.js";
import { list, moment, nodes, number, reasonOf, t, written } from "./i18n.js";
import { sayFailed, told, useAction } from "./memory.js";
import { Bones, Busy, Dialog, Failed, Icon, isFocusLost, ownName, Reason, RequestId, Time, Who } from "./parts.js";
import { Figure } from "./usage.js";

// Rows of each list at first and with each further step, and the most that the service sends at once.
const STEP = { forgotten: 100, cycles: 50, changes: 20 };
const MOST = 1000;

/** Reads the state and what is forgotten; `show(name)` shows more of a list. What was read stays after a failed reading. */
function useLifecycle(user) {
  const [state, setState] = useState({ status: null, forgotten: null, problem: null });
  const [limits, setLimits] = useState({ forgotten: STEP.forgotten, cycles: STEP.cycles });
  const round = useRef(0);
  const load = useCallback(async () => {
    const mine = (round.current += 1);
    try {
      const [status, forgotten] = await Promise.all([
        send("GET", "/lifecycle", { query: { user_id: user, limit: limits.cycles } }),
        send("GET", "/lifecycle/forgotten", { query: { user_id: user, limit: limits.forgotten } }),
      ]);
      if (mine === round.current) setState({ status, forgotten, problem: null });
    } catch (error) {
      const problem = failureOf(error);
      if (mine === round.current) setState((now) => ({ ...now, problem }));
    }
  }, [user, limits]);
  useEffect(() => void load(), [load]);
  const show = (name) => setLimits((now) => ({ ...now, [name]: Math.min(MOST, now[name] + STEP[name]) }));
  return { ...state, limits, load, show };
}

function Layers({ status }) {
  const { enabled, layers, pinned, forgotten, cycled_at: last, cycle_changed: n, next_cycle: next, lifecycle_since: since } = status;
  const did = n === null ? "lc_last" : n === 0 ? "lc_last_nothing" : "lc_last_changed";
  return html`<section class="sect"><h2><span>${t("lc_layers")}</span> <small>${last
      ? nodes(did, { when: html`<${Time} at=${last} />`, n }) : t("lc_never")}</small></h2>
    <dl class="grid3"><${Figure} label=${t("lc_short")} note=${t("lc_short_note")}>${number(layers.short_term)}<//>
      <${Figure} label=${t("long_term")} note=${t("lc_long_note")}>${number(layers.long_term)}<//>
      <${Figure} label=${t("pinned")} note=${t("lc_pinned_note")}>${number(pinned)}<//>
      <${Figure} label=${t("forgotten")} note=${t("lc_forgotten_note")}>${number(forgotten)}<//></dl>
    ${enabled && html`<p class="hint">${next ? nodes("lc_next", { when: html`<${Time} at=${next} />` }) : t("lc_next_none")}${t("between_sentences")}${since
      && nodes("lc_since", { when: html`<${Time} at=${since} as="day" />` })}</p>`}</section>`;
}

// --- what is forgotten ---------------------------------------------------------------------------------------------------------------------------------------

/** A memory as a line: who, its words, which lead to it, and a note below; `children` stand at its end. */
function Line({ record, note, children }) {
  return html`<li class="row fading" data-id=${record.id}><${Who} record=${record} />
    <span class="cell"><a class="read" href=${addressOf("memories", record.id)} ...${written(record.memory)}>${record.memory}</a></span>
    <div class="note">${note}</div>${children}</li>`;
}

function Forgotten({ app, query, page, purgeAfter, mayGrow, onMore, onChanged }) {
  const [erasing, setErasing] = useState(null);
  const [root, next, act] = [useRef(), useRef(null), useAction(app)];
  const rows = page.results;
  useLayoutEffect(() => { // the row of the pressed button is gone
    if (next.current === null || !isFocusLost()) return;
    (root.current.querySelectorAll(".fading")[next.current]?.querySelector("button") ?? root.current.querySelector("h2")).focus();
    next.current = null;
  });
  const leave = async (ids) => {
    const staying = rows.filter((one) => !ids.includes(one.id));
    next.current = Math.min(rows.findIndex((one) => ids.includes(one.id)), staying.length - 1);
    await onChanged();
  };
  const restore = (record) => act("lc_not_restored", async () => {
    await send("POST", `/events/${encodeURIComponent(record.event_id)}/undo`, { query });
    app.forgetChange();
    app.notify(() => t("lc_restored", { words: told(record.memory) }));
    await leave([record.id]);
  });
  const ask = (record) => act("lc_not_read", async () => {
    setErasing({ record, origin: await send("GET", memoryPath(record.id, "/explain"), { query }) });
  });
  return html`<section class="sect" ref=${root}><h2 tabindex="-1"><span>${t("lc_pending")}</span> <small>${t("lc_pending_n", { n: page.total })}</small></h2>
    ${purgeAfter && html`<p class="hint">${t("lc_pending_erased", { n: purgeAfter })}</p>`}
    ${rows.length === 0 ? html`<p class="hint">${t("lc_pending_none")}</p>` : html`<ul class="rows">${rows.map((one) => html`<${Line} key=${one.id} record=${one}
      note=${html`<span>${nodes("lc_forgotten_at", { when: html`<${Time} at=${one.forgotten_at} />` })}</span> ${one.reason && html`<${Reason} text=${one.reason} class="" />`}`}>
      <div class="acts">${one.event_id && html`<button type="button" class="btn small" aria-label=${t("lc_restore_one", { words: told(one.memory) })}
          onClick=${() => restore(one)}>${t("restore")}</button>`}
        <button type="button" class="btn quiet warns small" aria-label=${t("lc_purge_one", { words: told(one.memory) })}
          onClick=${() => ask(one)}>${t("lc_purge")}</button></div><//>`)}</ul>`}
    ${rows.length < page.total && html`<div class="pager"><span class="num" role="status">${t("shown", { n: rows.length, total: number(page.total) })}</span>
      ${mayGrow ? html`<button type="button" class="btn" onClick=${onMore}>${t("older")}</button>` : html`<span>${t("lc_pending_rest")}</span>`}</div>`}
    ${erasing && html`<${Erase} ...${erasing} app=${app} onErased=${leave} onClose=${() => setErasing(null)} />`}</section>`;
}

// --- cycles --------------------------------------------------------------------------------------------------------------------------------------------------

// What a dry run does to a memory, in the order in which it is shown: what somebody looks for before saying yes comes first.
const CHANGES = { purge: "lc_purge_it", forget: "forget", promote: "lc_promote", merge: "lc_merge", summarize: "lc_summarize", abstract: "lc_abstract" };
const PLACES = Object.keys(CHANGES);

/** Returns what a cycle did, or would do, as a list such as "3 forgotten, 1 kept for good". */
function numbersOf({ forgotten, promoted, purged, summarized = 0, abstracted = 0, composed = summarized + abstracted }) {
  const numbers = [["lc_n_forgotten", forgotten], ["lc_n_promoted", promoted], ["lc_n_composed", composed], ["lc_n_purged", purged]];
  const parts = numbers.filter(([, n]) => n > 0).map(([key, n]) => t(key, { n }));
  return parts.length ? list(parts) : t("lc_n_nothing");
}

/** The question before a cycle runs. One that would forget too many at once has to be confirmed. */
function Run({ app, query, plan, onRun, onClose }) {
  const [isSure, setSure] = useState(!plan.brake);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const run = async () => {
    setBusy(true);
    try {
      const result = await send("POST", "/lifecycle/cycles", { query, body: { force: Boolean(plan.brake) } });
      onClose();
      onRun(result);
    } catch (error) {
      setProblem(failureOf(error));
      setBusy(false);
    }
  };
  return html`<${Dialog} labelledby="run-title" onClose=${onClose}><div class="ask"><h2 id="run-title">${t("lc_run_ask")}</h2>
      <p>${t("lc_run_does", { what: numbersOf(plan) })}</p><p class="soft">${t("lc_run_so")}</p>
      ${plan.purged > 0 && html`<p class="soft">${t("lc_run_purges", { n: plan.purged })}</p>`}
      ${plan.brake && html`<label class="sure"><input type="checkbox" checked=${isSure} onChange=${(event) => setSure(event.target.checked)} />
        <span>${t("lc_run_sure", { n: plan.forgotten })}</span></label>`}
      ${problem && html`<p class="hint bad" role="alert">${t("lc_not_run", { reason: reasonOf(problem) })}<${RequestId} error=${problem} /></p>`}</div>
    <div class="asks"><button type="button" class="btn" data-first onClick=${onClose}>${t("lc_run_not")}</button>
      <${Busy} class="primary" busy=${isBusy} disabled=${!isSure || isBusy} title=${isSure ? null : t("erase_first")} label=${t("lc_run_do")}
        busyLabel=${t("lc_running")} onClick=${run} /></div><//>`;
}

/** What a cycle would do now, memory by memory; `onRun` is missing where none can be run. */
function Plan({ plan, onRun }) {
  const [shown, setShown] = useState(STEP.changes);
  const changes = [...(plan.changes ?? [])].sort((one, other) => PLACES.indexOf(one.change) - PLACES.indexOf(other.change));
  return html`<div class="plan"><p role="status">${t("lc_plan", { n: plan.processed, what: numbersOf(plan) })}</p>
    ${plan.brake && html`<div class="say warn"><${Icon} name="warn" /><span>${t("lc_brake", { n: plan.forgotten })}</span></div>`}
    ${changes.length > 0 && html`<ul class="rows">${changes.slice(0, shown).map((one) => html`<li class="row fading" key=${`${one.change} ${one.id}`}>
      <span class="who">${t(CHANGES[one.change])}</span>
      <span class="cell"><a class="read" href=${addressOf("memories", one.id)} ...${written(one.memory)}>${one.memory}</a></span>
      <div class="note"><${Reason} text=${one.reason} class="" /></div></li>`)}</ul>`}
    ${changes.length > shown && html`<p class="more"><button type="button" class="btn" onClick=${() => setShown(changes.length)}>${t("requests_all", { n: changes.length })}</button></p>`}
    ${changes.length > 0 && onRun && html`<p class="more"><button type="button" class="btn primary" onClick=${onRun}>${t("lc_run")}</button></p>`}</div>`;
}

function PastCycle({ cycle, isBusy, onUndo }) {
  return html`<li class="ev"><header><b>${numbersOf(cycle)}</b> <${Time} at=${cycle.at} />
      ${cycle.undone ? html`<span class="tag line">${t("ev_undo")}</span>` : html`<button type="button" class="btn quiet small" disabled=${isBusy} onClick=${onUndo}
        aria-label=${t("undo_of", { what: numbersOf(cycle), when: moment(cycle.at) })}><${Icon} name="undo" /><span>${t("lc_undo")}</span></button>`}</header>
    ${cycle.merged > 0 && html`<p class="faint">${t("lc_n_merged", { n: cycle.merged })}</p>`}</li>`;
}

function Cycles({ app, query, status, mayGrow, onMore, onChanged }) {
  const [plan, setPlan] = useState(null);
  const [isAsking, setAsking] = useState(false);
  const [busy, setBusy] = useState(""); // "plan", or the id of a cycle
  const [problem, setProblem] = useState(null);
  const [root, hasActed] = [useRef(), useRef(false)];
  const mayRun = !app.caller.agent_id; // a cycle is over all memories of a user
  useLayoutEffect(() => {
    if (!hasActed.current || busy || isAsking || !isFocusLost()) return;
    (root.current.querySelector("h2 button") ?? root.current.querySelector("h2")).focus({ preventScroll: true });
  });
  const see = async () => {
    setBusy("plan");
    setProblem(null);
    hasActed.current = true;
    try {
      setPlan(await send("POST", "/lifecycle/cycles", { query, body: { dry_run: true } }));
    } catch (error) {
      setProblem(failureOf(error));
    }
    setBusy("");
  };
  const takeBack = async (cycle) => {
    const result = await send("POST", "/lifecycle/undo", { query, body: { cycle } });
    setPlan(null);
    await onChanged();
    return result;
  };
  const undo = async ({ cycle }) => {
    setBusy(cycle);
    hasActed.current = true;
    try {
      const { undone, skipped, erased } = await takeBack(cycle);
      app.forgetChange();
      app.notify(() => [t("lc_undone", { n: undone.length }), skipped > 0 && t("lc_undone_but", { n: skipped }),
        erased > 0 && t("lc_undone_erased", { n: erased })].filter(Boolean).join(t("between_sentences")));
    } catch (error) {
      sayFailed(app, "lc_not_undone", error);
    }
    setBusy("");
  };
  const onRun = (result) => {
    setPlan(null);
    onChanged();
    const text = () => (result.brake ? t("lc_braked") : t("lc_ran", { what: numbersOf(result) }));
    if (result.forgotten + result.promoted + result.summarized + result.abstracted > 0) app.changed({ takeBack: () => takeBack(result.cycle) }, text);
    else app.notify(text);
  };
  return html`<section class="sect" ref=${root}><h2 tabindex="-1"><span>${t("lc_cycles")}</span> ${mayRun && html`<${Busy} class="small" busy=${busy === "plan"}
      label=${t("lc_see")} busyLabel=${t("lc_seeing")} onClick=${see} />`}</h2>
    ${!mayRun && html`<p class="hint">${t("lc_whole")}</p>`}
    ${status.enabled && status.held && html`<div class="say warn"><${Icon} name="warn" /><span>${nodes("lc_held", {
      when: html`<${Time} at=${status.cycled_at} />`, n: status.held.forgotten, all: number(status.held.memories) })}</span></div>`}
    ${problem && html`<${Failed} error=${problem} onRetry=${see}>${t("lc_not_seen", { reason: reasonOf(problem) })}<//>`}
    ${plan && html`<${Plan} plan=${plan} onRun=${status.enabled ? () => setAsking(true) : null} />`}
    ${status.cycles.length === 0 ? html`<p class="hint">${t("lc_cycles_none")}</p>` : html`<ol class="events cycles">${status.cycles.map((one) => html`<${PastCycle}
      key=${one.cycle} cycle=${one} isBusy=${busy === one.cycle} onUndo=${() => undo(one)} />`)}</ol>`}
    ${mayGrow && html`<p class="more"><button type="button" class="btn" onClick=${onMore}>${t("older")}</button></p>`}
    ${isAsking && html`<${Run} app=${app} query=${query} plan=${plan} onRun=${onRun} onClose=${() => setAsking(false)} />`}</section>`;
}

export function Lifecycle({ app }) {
  const { seesAll, user, caller } = app;
  const name = user ?? ownName(caller);
  return html`<section class="view"><div class="page"><div class="head"><div><h1>${t("lifecycle")}</h1>
      <p>${seesAll ? t("lc_what") : name ? t("lc_of", { name }) : t("lc_own")}</p></div></div>
    ${seesAll ? html`<div class="empty"><p class="read">${t("lc_whose")}</p><p class="soft">${t("user_choose")}</p></div>` : html`<${Whole} app=${app} />`}
  </div></section>`;
}

function Whole({ app }) {
  const { status, forgotten, problem, limits, load, show } = useLifecycle(app.user);
  const query = { user_id: app.user };
  const step = (by) => {
    const links = [...document.querySelectorAll(".fading a.read")];
    const place = links.indexOf(document.activeElement?.closest(".fading")?.querySelector("a.read"));
    links[place < 0 ? 0 : place + by]?.focus();
  };
  useLayoutEffect(() => app.keys({ j: () => step(1), k: () => step(-1) }), [app]);
  if (!status) {
    return problem ? html`<${Failed} error=${problem} onRetry=${load}>${t("lc_not_loaded", { reason: reasonOf(problem) })}<//>` : html`<${Bones} rows=${6} />`;
  }
  const shared = { app, query, onChanged: load };
  return html`${problem && html`<${Failed} error=${problem} onRetry=${load}>${t("not_fresh", { reason: reasonOf(problem) })}<//>`}
    ${!status.enabled && html`<div class="say"><${Icon} name="leaf" /><span>${nodes("lc_off", {
      setting: html`<code>lifecycle.enabled = true</code>`, variable: html`<code>GRAPHMEM_LIFECYCLE__ENABLED=true</code>` })}</span></div>`}
    <${Layers} status=${status} />
    <${Forgotten} page=${forgotten} purgeAfter=${status.enabled && status.purge_after_days} mayGrow=${limits.forgotten < MOST} onMore=${() => show("forgotten")} ...${shared} />
    <${Cycles} status=${status} mayGrow=${status.cycles.length === limits.cycles && limits.cycles < MOST} onMore=${() => show("cycles")} ...${shared} />`;
}
