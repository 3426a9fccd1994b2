// The view of the system, for an admin: figures, stores, dead letters, background jobs, usage, times and the latest requests.

import { html, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { failureOf, send } from "./api.js";
import { createFeed, useFeed } from "./feed.js";
import { nodes, number, reasonOf, t } from "./i18n.js";
import { Letters } from "./letters.js";
import { histograms, totalOf, within } from "./metrics.js";
import { Bones, Busy, Elsewhere, Failed, Icon, isFocusLost, Time } from "./parts.js";
import { statistics, Stores } from "./stores.js";
import { compact, milliseconds, span } from "./units.js";
import { Figure, NotRead, operationName, sumsOf, UsageFigures, UsageTable } from "./usage.js";

const JOBS = ["enrichment", "facts", "summary", "procedure", "composition", "description", "session", "cycle"];
// Those that are tried again without any model, which flushing does.
const MODELLESS = ["enrichment", "session", "cycle"];
const SHARES = [0.5, 0.95, 0.99];
// The scale of times: powers of ten of milliseconds, and the width of its drawing.
const SCALE = { decades: 5, width: 300 };
const MAX_REQUESTS = 200;
const SHOWN_REQUESTS = 12;
// What this view and programs that watch the service ask for all the time.
const WATCHING = ["/stats", "/metrics", "/requests", "/healthz", "/readyz", "/caller", "/ui/{path}"];

const requests = createFeed(() => send("GET", "/requests", { query: { limit: MAX_REQUESTS } }));
const metrics = createFeed(() => send("GET", "/metrics", { as: "text" }));

function Jobs({ stats, app }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const [failure, setFailure] = useState(null);
  const count = (kind, state) => stats.job_counts.find((one) => one.kind === kind && one.state === state)?.number ?? 0;
  const oldest = (kind) => {
    const ages = stats.job_counts.filter((one) => one.kind === kind).map((one) => one.oldest_seconds);
    return ages.length ? span(Math.max(...ages)) : "–";
  };
  const failed = JOBS.filter((kind) => count(kind, "failed") > 0);
  const [heading, hasTried] = [useRef(), useRef(false)];
  useLayoutEffect(() => {
    // The button was disabled, or is gone once nothing has failed.
    if (hasTried.current && !isBusy && isFocusLost()) (heading.current.querySelector("button") ?? heading.current).focus({ preventScroll: true });
  }, [isBusy, failed.length]);
  const retry = async () => {
    hasTried.current = true;
    setBusy(true);
    setProblem("");
    setFailure(null);
    try {
      const answer = await send("POST", failed.some((kind) => !MODELLESS.includes(kind)) ? "/retry" : "/flush");
      const errors = Object.entries(answer.failed ?? {});
      if (errors.length) setProblem(errors.map(([error, n]) => t("retry_failed", { n, cause: answer.causes?.[error] ?? error })).join(" "));
      else app.notify(t(answer.pending.length ? "retry_pending" : "retry_done"));
    } catch (error) {
      setFailure(failureOf(error));
    }
    statistics.refresh();
    setBusy(false);
  };
  return html`<section class="sect"><h2 tabindex="-1" ref=${heading}><span>${t("jobs")}</span>${(failed.length > 0 || isBusy)
      && html`<${Busy} class="small" busy=${isBusy} label=${t("try_again")} busyLabel=${t("trying")} onClick=${retry} />`}</h2>
    ${problem || failure ? html`<${Failed} error=${failure}>${problem || t("not_retried", { reason: reasonOf(failure) })}<//>` : failed.length > 0 && html`<p class="hint">${t("jobs_failed_do")}</p>`}
    <div class="scroll"><table class="table"><thead><tr><th>${t("job")}</th>${["waiting", "running", "failed"].map((state) =>
      html`<th class="r" key=${state}>${t(`jobs_${state}`)}</th>`)}<th class="r">${t("jobs_oldest")}</th></tr></thead>
    <tbody>${JOBS.map((kind) => html`<tr key=${kind}><td>${t(`job_${kind}`)}</td><td class="r">${number(count(kind, "waiting"))}</td>
      <td class="r">${number(count(kind, "running"))}</td><td class=${count(kind, "failed") ? "r bad" : "r"}>${number(count(kind, "failed"))}</td>
      <td class="r">${oldest(kind)}</td></tr>`)}</tbody></table></div>
    <${LastCycles} cycles=${stats.last_cycles} /></section>`;
}

/** When cycles of the lifecycle last ran, and what they did: one that changed nothing leaves no other trace. */
function LastCycles({ cycles: { ended_at: at, partitions, changed, held } }) {
  if (!at) return html`<p class="hint">${t("cycles_none")}</p>`;
  const did = changed ? t("cycles_changed", { n: changed }) : t("cycles_nothing", { n: partitions });
  return html`<p class="hint">${nodes("cycles_last", { when: html`<${Time} at=${at} />` })}${t("between_sentences")}${did}${held > 0
    && html`${t("between_sentences")}${t("cycles_held", { n: held })}`}</p>`;
}

/** Returns the place of a time (seconds) on the logarithmic scale of milliseconds. */
function placeOf(seconds) {
  const decades = Math.log10(Math.max(1, Math.min(seconds * 1000, 10 ** SCALE.decades)));
  return Math.round((decades / SCALE.decades) * SCALE.width);
}

/** Returns the bound of the measurements as text; above the last one it is that one. */
function bound(series, share) {
  const seconds = within(series, share);
  if (seconds !== Infinity) return number(seconds * 1000);
  return `> ${number(Math.max(...[...series.keys()].filter(Number.isFinite)) * 1000)}`;
}

function Times({ text }) {
  const of = (name, label) => histograms(text, label)[name] ?? {};
  const rows = [
    [t("time_search"), of("search_duration_seconds")[""]],
    [t("time_chat"), of("proxy_overhead_seconds")[""]],
    [t("time_request"), of("request_duration_seconds")[""]],
    ...Object.entries(of("model_duration_seconds", "operation")).map(([name, series]) => [t("time_model", { name: operationName(name) }), series]),
  ].filter(([, series]) => totalOf(series) > 0);
  return html`<section class="sect"><h2><span>${t("times")}</span> <small>${t("times_unit")}</small></h2>
    ${rows.length === 0 ? html`<p class="hint">${t("times_none")}</p>` : html`<div class="scroll"><table class="table"><thead><tr><th>${t("operation")}</th>
      <th class="r opt">${t("times_n")}</th>${SHARES.map((share) => html`<th class="r" key=${share}>${t("times_share", { n: share * 100 })}</th>`)}<td /></tr></thead>
    <tbody>${rows.map(([name, series]) => {
      const [from, to] = [placeOf(within(series, 0.5)), placeOf(within(series, 0.99))];
      return html`<tr key=${name}><td>${name}</td><td class="r opt">${compact(totalOf(series))}</td>${SHARES.map((share) =>
        html`<td class="r" key=${share}>${bound(series, share)}</td>`)}<td class="bar wide-bar">
        <svg class="range" viewBox="0 0 300 14" preserveAspectRatio="none" aria-hidden="true"><rect class="tr" y="6.5" width="300" height="1" />
          <rect class="va" x=${from} y="4" width=${to - from} height="6" /><rect class="md" x=${from} y="1" width="3" height="12" rx="1" /></svg></td></tr>`;
    })}</tbody></table></div>`}</section>`;
}

function Requests({ found }) {
  const [isWhole, setWhole] = useState(false);
  const others = found.filter((one) => !WATCHING.includes(one.route));
  const shown = isWhole ? others : others.slice(0, SHOWN_REQUESTS);
  return html`<section class="sect"><h2><span>${t("requests")}</span> <small>${t("requests_which")}</small></h2>
    ${others.length === 0 ? html`<p class="hint">${t("requests_none")}</p>` : html`<div class="scroll"><table class="table"><thead><tr><th>${t("request")}</th>
      <th class="opt">${t("key_role")}</th><th class="r">${t("request_status")}</th><th class="r">${t("request_time")}</th><th class="r">${t("request_at")}</th></tr></thead>
    <tbody>${shown.map((one, place) => html`<tr key=${place}><td class="route">${one.method} ${one.route}</td>
      <td class="soft opt">${one.role}</td><td class=${one.status >= 500 ? "r bad" : "r"}>${one.status}</td>
      <td class="r">${milliseconds(one.latency_ms)}</td><td class="r"><${Time} at=${one.at} as="time" /></td></tr>`)}</tbody></table></div>`}
    ${shown.length < others.length && html`<p class="more"><button type="button" class="btn" onClick=${() => setWhole(true)}>
      ${t("requests_all", { n: others.length })}</button></p>`}</section>`;
}

function SearchFigure({ text }) {
  const series = histograms(text).search_duration_seconds?.[""];
  const seconds = within(series, SHARES.at(-1));
  return html`<${Figure} label=${t("search_within")} note=${seconds === null ? t("search_unmeasured") : t("since_start")}>
    ${seconds === null ? "–" : t("span_milliseconds", { n: bound(series, SHARES.at(-1)) })}<//>`;
}

/** The memories that lists of all users have, and what else is stored: a number for each meaning. */
function StoredFigure({ data: { listed, retired, memories } }) {
  const notes = [retired > 0 && t("stored_past", { n: retired }), memories > listed + retired && t("stored_rows", { n: memories })].filter(Boolean);
  return html`<${Figure} label=${t("stored")} note=${notes.join(t("comma"))}>${number(listed)}<//>`;
}

/** The view of the system. Its parts that metrics feed are left out where the service is configured without. */
export function System({ app }) {
  const [stats, measured, latest] = [useFeed(statistics), useFeed(metrics), useFeed(requests)];
  const data = stats.data;
  return html`<section class="view"><div class="page"><div class="head"><div><h1>${t("system")}</h1><p>${t("system_whose")}</p></div></div>
    <${Elsewhere} names=${["lifecycle", "keys"]} />
    <${NotRead} feed=${statistics} now=${stats} />
    ${data?.configured_embedder !== undefined && html`<div class="say warn"><${Icon} name="warn" /><span>${t("needs_rebuild", {
      old: data.embedder, now: data.configured_embedder })}</span></div>`}
    ${data ? html`<dl class="grid3"><${StoredFigure} data=${data} />
        ${measured.data !== null && html`<${SearchFigure} text=${measured.data} />`}<${UsageFigures} sums=${sumsOf(data.usage)} /></dl>
      <${Stores} stats=${data} /><${Letters} stats=${data} app=${app} /><${Jobs} stats=${data} app=${app} /><${UsageTable} usage=${data.usage} />`
    : !stats.error && html`<${Bones} rows=${6} />`}
    ${measured.data !== null && html`<${Times} text=${measured.data} />`}
    ${latest.data && html`<${Requests} found=${latest.data} />`}
  </div></section>`;
}
