// The dead letters of webhooks, for an admin: events that a webhook did not take, to be posted once more or dropped.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { failureOf, send } from "./api.js";
import { createFeed, useFeed } from "./feed.js";
import { number, reasonOf, t, written } from "./i18n.js";
import { sayFailed } from "./memory.js";
import { Busy, Dialog, isFocusLost, RequestId, Time } from "./parts.js";
import { countLetters, statistics } from "./stores.js";
import { NotRead } from "./usage.js";

// Rows at first and with each further step, and the most that the service sends at once.
const STEP = 20;
const MOST = 1000;
// Why a webhook did not take an event, as the service writes it.
const CAUSES = { "no answer in time": "letter_late", "cannot be reached": "letter_away" };

const keyOf = ({ webhook, event_type: type, id }) => `${webhook} ${type} ${id}`;
const pathOf = ({ id }) => `/webhooks/dead-letters/${encodeURIComponent(id)}`;

/** Returns why a webhook did not take an event, in words of the page where the service's are known. */
function causeOf(error) {
  const cause = error.replace(/^WebhookFailed: /, "");
  const status = cause.match(/^HTTP (\d{3})$/)?.[1];
  if (status) return t("letter_status", { status });
  return Object.hasOwn(CAUSES, cause) ? t(CAUSES[cause]) : error;
}

/** The question before a dead letter is dropped: its event is never told. */
function Drop({ letter, app, onDropped, onClose }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const { webhook, event_type: type } = letter;
  const drop = async () => {
    setBusy(true);
    try {
      await send("DELETE", pathOf(letter), { query: { webhook } });
      onClose();
      app.notify(() => t("letter_dropped", { type, webhook }));
      onDropped(letter);
    } catch (error) {
      setProblem(failureOf(error));
      setBusy(false);
    }
  };
  return html`<${Dialog} labelledby="drop-title" onClose=${onClose}><div class="ask"><h2 id="drop-title">${t("letter_drop_ask", { type, webhook })}</h2>
    <p class="soft">${t("letter_drop_so")}</p>
    ${problem && html`<p class="hint bad" role="alert">${t("letter_not_dropped", { reason: reasonOf(problem) })}<${RequestId} error=${problem} /></p>`}</div>
    <div class="asks"><button type="button" class="btn" data-first onClick=${onClose}>${t("letter_drop_not")}</button>
      <${Busy} class="danger" busy=${isBusy} label=${t("letter_drop")} busyLabel=${t("letter_dropping")} onClick=${drop} /></div><//>`;
}

function Letter({ letter, isBusy, isAnyBusy, onRetry, onDrop }) {
  const { webhook, event_type: type, error, user_id: user, timestamp: at } = letter;
  return html`<li class="store letter" data-key=${keyOf(letter)}><b>${webhook}</b><code class="where">${type}</code>
    <div class="what"><span class="warned">${causeOf(error)}</span> ${at
      ? html`<span>${user && html`<bdi ...${written(user)}>${user}</bdi>${t("comma")}`}<${Time} at=${at} /></span>` : html`<span>${t("letter_gone")}</span>`}</div>
    <div class="acts">${at && html`<${Busy} class="small" busy=${isBusy} disabled=${isAnyBusy} label=${t("letter_retry")} busyLabel=${t("trying")}
        aria-label=${t("letter_retry_one", { type, webhook })} onClick=${onRetry} />`}
      <button type="button" class="btn quiet warns small" disabled=${isAnyBusy} aria-label=${t("letter_drop_one", { type, webhook })}
        onClick=${onDrop}>${t("letter_drop_more")}</button></div></li>`;
}

/** The dead letters of all webhooks; nothing as long as there are none, and were none while this is shown. */
export function Letters({ stats, app }) {
  const hadSome = useRef(false);
  hadSome.current ||= countLetters(stats) > 0;
  return hadSome.current && html`<${Listed} stats=${stats} app=${app} />`;
}

function Listed({ stats, app }) {
  const [limit, setLimit] = useState(STEP);
  const feed = useMemo(() => createFeed(() => send("GET", "/webhooks/dead-letters", { query: { limit } })), [limit]);
  const now = useFeed(feed);
  const [busy, setBusy] = useState(""); // the key of the one that is posted, or "drop"
  const [dropping, setDropping] = useState(null);
  const [root, next] = [useRef(), useRef(null)];
  const rows = now.data?.results ?? [];
  const total = now.data?.total ?? countLetters(stats);
  useLayoutEffect(() => { // the pressed button was disabled, or is gone with its row
    if (next.current === null || busy) return;
    const letters = [...root.current.querySelectorAll(".letter")];
    const row = letters[Math.min(next.current, letters.length - 1)];
    if (isFocusLost()) (row?.querySelector("button") ?? root.current.querySelector("h2")).focus({ preventScroll: true });
    next.current = null;
  }, [busy]);
  const finish = async (letter) => {
    next.current = rows.findIndex((one) => keyOf(one) === keyOf(letter));
    await Promise.all([feed.refresh(), statistics.refresh()]);
    setBusy("");
  };
  const retry = async (letter) => {
    const { webhook, event_type: type } = letter;
    setBusy(keyOf(letter));
    try {
      const { delivered, error } = await send("POST", `${pathOf(letter)}/retry`, { query: { webhook } });
      app.notify(() => (delivered ? t("letter_delivered", { type, webhook }) : t("letter_refused", { cause: causeOf(error), webhook })));
    } catch (error) {
      sayFailed(app, "letter_not_retried", error);
    }
    await finish(letter);
  };
  const leave = (letter) => {
    setBusy("drop");
    return finish(letter);
  };
  return html`<section class="sect" ref=${root}><h2 tabindex="-1"><span>${t("letters")}</span> <small>${t("letters_n", { n: total })}</small></h2>
    <${NotRead} feed=${feed} now=${now} />
    ${total === 0 ? html`<p class="hint">${t("letters_none")}</p>` : html`<p class="hint">${t("letters_do")}</p>`}
    ${rows.length > 0 && html`<ul class="letters">${rows.map((one) => html`<${Letter} key=${keyOf(one)} letter=${one} isBusy=${busy === keyOf(one)} isAnyBusy=${busy !== ""}
      onRetry=${() => retry(one)} onDrop=${() => setDropping(one)} />`)}</ul>`}
    ${rows.length > 0 && rows.length < total && html`<div class="pager"><span class="num" role="status">${t("shown", { n: rows.length, total: number(total) })}</span>
      ${limit < MOST ? html`<button type="button" class="btn" onClick=${() => setLimit(Math.min(MOST, limit + 5 * STEP))}>${t("letters_more")}</button>`
        : html`<span>${t("letters_rest")}</span>`}</div>`}
    ${dropping && html`<${Drop} letter=${dropping} app=${app} onDropped=${leave} onClose=${() => setDropping(null)} />`}</section>`;
}
