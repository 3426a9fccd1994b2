// How the stores are: the lamp of the frame, and the stores of the view of the system.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { failureOf, send, SERVICE_BACK } from "./api.js";
import { createFeed, useFeed } from "./feed.js";
import { nodes, reasonOf, t, utc } from "./i18n.js";
import { Busy, Failed, Icon, isFocusLost, Time } from "./parts.js";
import { bytes, span } from "./units.js";

/** The counts of the whole ledger, for an admin. The lamp and the view share it. */
export const statistics = createFeed(() => send("GET", "/stats"));

// The thread of a store: so many changes are its length, which is as wide (units of its drawing).
const THREAD = { changes: 50, width: 226 };
const PROVIDERS = { sqlite: "SQLite", postgresql: "PostgreSQL", qdrant: "Qdrant", neo4j: "Neo4j", networkx: "networkx", redis: "Redis" };
// Those that have no name: working memory of the process, and a store that a program gave as an object.
const OWN_WORDS = ["memory", "given"];
const WORKING = "working";
const PROBLEMS = ["missing", "extra", "stale", "dead_letters"];

function storeName(name) {
  return t(`store_${name}`);
}

/** Returns the stores, and working memory as one of them where it is configured. */
function storesOf({ stores, working_provider: provider, working_available: available }) {
  return provider ? [...stores, { name: WORKING, provider, available, seq: null, pending: 0, dead_letters: 0 }] : stores;
}

/** Returns how a store is: "bad" (out of reach), "warn" (behind, it refused rows, or the ledger answers in its place) or "". */
function stateOf(store) {
  if (!store.available) return store.name === WORKING ? "warn" : "bad";
  return store.pending || store.dead_letters ? "warn" : "";
}

/** Returns how many jobs failed and wait for another attempt. */
function failedJobs(data) {
  return data.job_counts.filter((one) => one.state === "failed").reduce((sum, one) => sum + one.number, 0);
}

/** Returns how many events webhooks did not take. */
export function countLetters({ dead_letters: letters }) {
  return Object.values(letters).reduce((sum, n) => sum + n, 0);
}

/** Returns the state of the worst store, or else of the jobs or the webhooks, and the words about it. */
function worst({ data, error }) {
  if (error) return ["bad", error.status === 503 ? t("lamp_ledger") : t("lamp_service")];
  const store = ["bad", "warn"].map((state) => storesOf(data).find((one) => stateOf(one) === state)).find(Boolean);
  if (!store) {
    const [failed, letters] = [failedJobs(data), countLetters(data)];
    if (failed) return ["warn", t("lamp_failed", { n: failed })];
    return letters ? ["warn", t("lamp_letters", { n: letters })] : ["", t("lamp_well")];
  }
  const values = { name: storeName(store.name), n: store.pending || store.dead_letters };
  if (!store.available) return [stateOf(store), t("lamp_away", values)];
  return ["warn", t(store.pending ? "lamp_behind" : "lamp_refused", values)];
}

/** The lamp in the frame, for an admin: the worst state of a store, of the jobs or of the webhooks, which leads to the view of the system. */
export function Lamp() {
  const now = useFeed(statistics);
  useEffect(() => {
    addEventListener(SERVICE_BACK, statistics.refresh);
    return () => removeEventListener(SERVICE_BACK, statistics.refresh);
  }, []);
  if (!now.data && !now.error) return null;
  const [state, words] = worst(now);
  return html`<a class="state" href=${addressOf("system")} title=${words} aria-label=${words}><i class=${`lamp ${state}`} /><span>${words}</span></a>`;
}

/** The thread of a store up to its last change; dotted where it lacks the latest ones. */
function Track({ store }) {
  if (store.seq === null) return html`<div class="track" />`;
  const end = THREAD.width * (1 - Math.min(store.pending, THREAD.changes) / THREAD.changes);
  const late = store.pending ? "warn" : "";
  return html`<div class="track"><svg viewBox="0 0 240 12" preserveAspectRatio="xMinYMid meet" aria-hidden="true">
      ${store.pending > 0 && html`<line class="tr" x1=${end + 16} x2="236" y1="6" y2="6" />`}
      ${end > 2 && html`<line class=${`va ${late}`} x1="0" x2=${end - 2} y1="6" y2="6" />`}
      <rect class=${`sl ${late}`} x=${end} y="1.5" width="13" height="9" rx="2" /></svg>
    <small class="num">${t("store_at", { n: store.seq })}</small></div>`;
}

function What({ store }) {
  const oldest = store.oldest_pending_at;
  const behind = store.pending > 0 && html`<span class="warned">${t("store_behind", { n: store.pending })}</span>${oldest
    && nodes("store_oldest", { span: html`<time datetime=${oldest} title=${utc(oldest)}>${span((Date.now() - new Date(oldest)) / 1000)}</time>` })}`;
  const refused = store.dead_letters > 0 && html`<span class="warned">${t("store_refused", { n: store.dead_letters })}</span> ${t("store_refused_do")}`;
  if (store.name === WORKING) return store.available ? t("store_working_well") : html`<span class="warned">${t("store_working_away")}</span> ${t("store_working_so")}`;
  if (!store.available) return html`<span class="warned">${t("store_away")}</span> ${behind}`;
  if (behind) return html`${behind}${t("store_behind_so")} ${refused}`;
  if (refused) return refused;
  if (store.name === "ledger") return t("store_ledger_well");
  return t(store.seq === null ? "store_private_well" : "store_well");
}

function Store({ store, size }) {
  const where = [OWN_WORDS.includes(store.provider) ? t(`store_${store.provider}`) : PROVIDERS[store.provider] ?? store.provider];
  if (size) where.push(bytes(size));
  return html`<div class="store"><h3><i class=${`lamp ${stateOf(store)}`} /><span>${storeName(store.name)}</span></h3>
    <span class="where">${where.join(t("comma"))}</span><div class="what"><${What} store=${store} /></div><${Track} store=${store} /></div>`;
}

function differences(report) {
  const lines = [
    ...report.damaged.map((text) => ({ text: t("verify_damaged", { text }) })),
    ...report.derived.map((text) => ({ text: t("verify_derived", { text }) })),
  ];
  if (report.failed) lines.push({ text: t("verify_failed", { n: report.failed }) });
  for (const [name, found] of Object.entries(report.projections)) {
    for (const text of [...found.unreadable, ...found.unreachable]) lines.push({ text: t("verify_closed", { name: storeName(name), text }) });
    for (const problem of PROBLEMS.filter((one) => found[one].length)) {
      lines.push({ text: t(`verify_${problem}`, { name: storeName(name), n: found[problem].length }), ids: found[problem] });
    }
  }
  return lines;
}

function Report({ report, at, isRepaired, isBusy, onRepair }) {
  if (report.ok) {
    const values = { when: html`<${Time} at=${at} />`, total: t("verify_total", { n: report.ledger.memories }) };
    return html`<p class="hint" role="status">${nodes(isRepaired ? "repair_well" : "verify_well", values)}</p>`;
  }
  return html`<div class="say warn report" role="status"><${Icon} name="warn" />
    <div><p>${nodes(isRepaired ? "repair_differs" : "verify_differs", { when: html`<${Time} at=${at} />` })}</p>
      <ul>${differences(report).map(({ text, ids }) => html`<li key=${text}>${ids
        ? html`<details><summary>${text}</summary><p class="mono">${ids.join(" ")}</p></details>` : text}</li>`)}</ul></div>
    <${Busy} class="small" busy=${isBusy} label=${t("repair")} busyLabel=${t("repairing")} onClick=${onRepair} /></div>`;
}

/** The stores, with a comparison of all on demand. */
export function Stores({ stats }) {
  const [found, setFound] = useState(null);
  const [busy, setBusy] = useState("");
  const [problem, setProblem] = useState(null);
  const root = useRef();
  useLayoutEffect(() => {
    if ((found || problem) && !busy && isFocusLost()) root.current.querySelector("h2 button").focus({ preventScroll: true });
  }, [busy]);
  const run = async (path) => {
    setBusy(path);
    setProblem(null);
    try {
      setFound({ report: await send("POST", path), at: new Date().toISOString(), isRepaired: path === "/repair" });
      statistics.refresh();
    } catch (error) {
      setProblem(failureOf(error));
    }
    setBusy("");
  };
  return html`<section class="sect" ref=${root}><h2><span>${t("stores")}</span> <small>${t("stores_truth")}</small>
      <${Busy} class="small" busy=${busy === "/verify"} disabled=${busy !== ""} label=${t("verify")} busyLabel=${t("verifying")} onClick=${() => run("/verify")} /></h2>
    ${storesOf(stats).map((store) => html`<${Store} key=${store.name} store=${store} size=${store.name === "ledger" && stats.bytes} />`)}
    ${problem && html`<${Failed} error=${problem}>${t("not_verified", { reason: reasonOf(problem) })}<//>`}
    ${found && html`<${Report} ...${found} isBusy=${busy === "/repair"} onRepair=${() => run("/repair")} />`}</section>`;
}
