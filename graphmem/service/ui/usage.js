// What language models were used for: figures and a table by operation, for the view of the system and for a user's own usage.

import { html, useMemo } from "./vendor/htm-preact.js";
import { send } from "./api.js";
import { createFeed, useFeed } from "./feed.js";
import { number, reasonOf, t } from "./i18n.js";
import { Bones, Elsewhere, Failed, ownName } from "./parts.js";
import { compact, money } from "./units.js";

const OPERATIONS = [
  "facts", "decide", "summary", "procedure", "rewrite", "merge", "summarize", "abstract", "describe", "transcribe",
];
const SUMS = ["calls", "prompt_tokens", "completion_tokens", "cost"];

/** Returns the name of what a language model, or "embed", was asked for. */
export function operationName(operation) {
  return [...OPERATIONS, "embed"].includes(operation) ? t(`operation_${operation}`) : operation;
}

/** Returns the sums of the lines of a usage. A cost of 0 means that prices are not configured. */
export function sumsOf(usage) {
  return Object.fromEntries(SUMS.map((name) => [name, usage.reduce((sum, line) => sum + line[name], 0)]));
}

export function Figure({ label, note, children }) {
  return html`<div class="fig"><dt>${label}</dt><dd>${children} ${note && html`<small>${note}</small>`}</dd></div>`;
}

/** The figures of tokens and, where prices are known, of money. */
export function UsageFigures({ sums }) {
  return html`<${Figure} label=${t("tokens")}>${compact(sums.prompt_tokens + sums.completion_tokens)}<//>
    ${sums.cost > 0 && html`<${Figure} label=${t("cost")} note=${t("cost_currency")}>${money(sums.cost)}<//>`}`;
}

/** The usage by operation and model, the largest first. */
export function UsageTable({ usage }) {
  const sums = sumsOf(usage);
  const weight = sums.cost > 0 ? (line) => line.cost : (line) => line.prompt_tokens + line.completion_tokens;
  const lines = [...usage].sort((one, other) => weight(other) - weight(one));
  const largest = Math.max(1e-9, ...usage.map(weight));
  const cells = (line) => html`<td class="r">${number(line.calls)}</td><td class="r">${compact(line.prompt_tokens)}</td>
    <td class="r">${compact(line.completion_tokens)}</td>${sums.cost > 0 && html`<td class="r">${money(line.cost)}</td>`}`;
  return html`<section class="sect"><h2><span>${t(sums.cost > 0 ? "by_cost" : "by_tokens")}</span> <small>${t("by_model")}</small></h2>
    ${usage.length === 0 ? html`<p class="hint">${t("unused")}</p>` : html`<div class="scroll"><table class="table"><thead><tr>
      <th>${t("operation")}</th><th class="opt">${t("model")}</th><th class="r">${t("calls")}</th><th class="r">${t("tokens_in")}</th>
      <th class="r">${t("tokens_out")}</th>${sums.cost > 0 && html`<th class="r">${t("cost_column")}</th>`}<td class="opt" /></tr></thead>
    <tbody>${lines.map((line) => html`<tr key=${`${line.operation} ${line.model}`}><td>${operationName(line.operation)}</td>
      <td class="soft opt">${line.model}</td>${cells(line)}<td class="bar opt"><svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect class="va" width=${Math.round((100 * weight(line)) / largest)} height="6" rx="1" /></svg></td></tr>`)}</tbody>
    <tfoot><tr><td>${t("together")}</td><td class="opt" />${cells(sums)}<td class="opt" /></tr></tfoot></table></div>`}</section>`;
}

/** A notice where figures could not be read; those that were read before stay. */
export function NotRead({ feed, now }) {
  if (!now.error) return null;
  const reason = reasonOf(now.error);
  return html`<${Failed} error=${now.error} onRetry=${feed.refresh}>${t(now.data ? "not_fresh" : "not_read", { reason })}<//>`;
}

/** The usage of one user. */
export function Usage({ app }) {
  const feed = useMemo(() => createFeed(() => send("GET", "/stats", { query: { user_id: app.user } })), [app.user]);
  const now = useFeed(feed);
  const name = app.user ?? ownName(app.caller);
  return html`<section class="view"><div class="page"><div class="head"><div><h1>${t("usage")}</h1>
      <p>${name ? t("usage_of", { name }) : t("usage_own")}</p></div></div>
    <${Elsewhere} names=${["lifecycle"]} />
    <${NotRead} feed=${feed} now=${now} />
    ${now.data ? html`<dl class="grid3"><${UsageFigures} sums=${sumsOf(now.data.usage)} />
        <${Figure} label=${t("requests_model")}>${number(sumsOf(now.data.usage).calls)}<//></dl>
      <${UsageTable} usage=${now.data.usage} />` : !now.error && html`<${Bones} rows=${4} />`}
  </div></section>`;
}
