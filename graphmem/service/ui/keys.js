// The keys of the service's clients, for an admin: a table, a form that makes one, and the question before one is revoked.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { addressOf, readAddress } from "./addresses.js";
import { failureOf, send } from "./api.js";
import { endOfDay } from "./days.js";
import { drafts } from "./drafts.js";
import { localDay, reasonOf, t } from "./i18n.js";
import { Bones, Busy, Dialog, Failed, Icon, isFocusLost, RequestId, Time } from "./parts.js";
import { currentKey } from "./preferences.js";

const NEW = "new";
// The name among the drafts of a key that was made and not confirmed yet.
const MADE = "key that was made";
const ROLES = ["user", "app", "admin", "metrics"];
const RATE = /^[1-9]\d*\/(second|minute|hour|day)$/;
const FIELDS = ["label", "user_id", "agent_id", "expires_at", "rate"];
const EMPTY = { label: "", role: "user", user_id: "", agent_id: "", expires_at: "", rate: "" };

function isOwn(key) {
  return (currentKey() ?? "").startsWith(`${key.key_prefix}_`);
}

/** Returns why a key is not valid any more, as words and the time; null if it is. */
function endOf(key) {
  if (key.revoked_at) return ["key_revoked", key.revoked_at];
  return key.expires_at && new Date(key.expires_at) <= new Date() ? ["key_expired", key.expires_at] : null;
}

/** Until when a key is valid: its last day if it is valid to the end of it, otherwise the time too. */
function End({ at }) {
  const isWholeDay = new Date(at) >= new Date(endOfDay(localDay(at)));
  return html`<${Time} at=${at} as=${isWholeDay ? "day" : "moment"} />`;
}

/** Returns the problems of what was typed, by field. */
function problemsOf(typed) {
  const found = {};
  if (!typed.label.trim()) found.label = t("key_label_needed");
  if (typed.role === "user" && !typed.user_id.trim()) found.user_id = t("key_user_needed");
  if (typed.expires_at && typed.expires_at < localDay(new Date())) found.expires_at = t("key_expires_past");
  if (typed.rate.trim() && !RATE.test(typed.rate.trim())) found.rate = t("key_rate_form");
  return found;
}

/** Returns the body of the request that makes a key; only a key of the role "user" has a user and an agent. It is valid to the end of the local day. */
function bodyOf(typed) {
  const names = typed.role === "user" ? FIELDS : FIELDS.filter((name) => !["user_id", "agent_id"].includes(name));
  const given = names.map((name) => [name, typed[name].trim()]).filter(([, text]) => text);
  const body = { role: typed.role, ...Object.fromEntries(given) };
  return body.expires_at ? { ...body, expires_at: endOfDay(body.expires_at) } : body;
}

/** The secret of a key that was made. It is in the memory of the page alone, until it is confirmed or somebody signs out. */
function Made({ made, app, onHave }) {
  const title = useRef();
  useLayoutEffect(() => title.current.focus(), []);
  const copy = () => app.copy(made.key);
  return html`<section class="make" aria-labelledby="made-title"><h2 id="made-title" class="words" tabindex="-1" ref=${title}>${t("key_made", { label: made.label })}</h2>
    <div class="say warn"><${Icon} name="lock" /><span>${t("key_once")}</span></div>
    <div class="secret"><pre tabindex="0" aria-label=${t("key_whole")}>${made.key}</pre>
      <button type="button" class="btn primary" onClick=${copy}><${Icon} name="copy" /><span>${t("copy")}</span></button></div>
    <p><button type="button" class="btn" onClick=${onHave}>${t("key_leave")}</button></p></section>`;
}

function Field({ name, typed, problems, hint, onType, ...rest }) {
  const problem = problems[name];
  const note = problem || hint;
  return html`<div><label class="label" for=${`key-${name}`}>${t(`key_${name}`)}</label>
    <input class="field" dir="auto" id=${`key-${name}`} autocomplete="off" value=${typed[name]} onInput=${(event) => onType(name, event.target.value)}
      aria-invalid=${problem ? "true" : null} aria-describedby=${note ? `key-${name}-note` : null} ...${rest} />
    ${note && html`<p class=${problem ? "hint bad" : "hint"} id=${`key-${name}-note`}>${note}</p>`}</div>`;
}

/** The form that makes a key. `onMade` is called with the key, also if the form was left meanwhile. */
function Make({ app, onMade }) {
  const [typed, setTyped] = useState(EMPTY);
  const [problems, setProblems] = useState({});
  const [failure, setFailure] = useState(null); // of the last attempt
  const [isBusy, setBusy] = useState(false);
  const form = useRef();
  useLayoutEffect(() => form.current?.querySelector("input").focus(), []);
  useLayoutEffect(() => app.keys({ Escape: () => (location.hash = addressOf("keys")) }), [app]);
  const type = (name, text) => {
    setTyped((now) => ({ ...now, [name]: text }));
    setProblems(({ [name]: _, ...rest }) => rest);
  };
  const show = (found) => {
    setProblems(found);
    form.current?.querySelector(`#key-${FIELDS.find((name) => found[name]) ?? "label"}`)?.focus();
  };
  const make = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    const found = problemsOf(typed);
    if (Object.keys(found).length) return show(found);
    setBusy(true);
    try {
      onMade(await send("POST", "/api-keys", { body: bodyOf(typed) }));
    } catch (error) {
      setFailure(failureOf(error));
      const reason = t("key_not_made", { reason: reasonOf(error) });
      show({ [FIELDS.find((name) => error.detail.startsWith(name)) ?? "all"]: reason });
    }
    setBusy(false);
  };
  const shared = { typed, problems, onType: type };
  return html`<form class="make" ref=${form} onSubmit=${make} noValidate aria-labelledby="make-title"><h2 id="make-title" class="words">${t("key_make")}</h2>
    <${Field} name="label" hint=${t("key_label_hint")} ...${shared} />
    <div><label class="label" for="key-role">${t("key_role")}</label>
      <select class="field" id="key-role" value=${typed.role} onChange=${(event) => type("role", event.target.value)} aria-describedby="key-role-note">
        ${ROLES.map((role) => html`<option key=${role} value=${role}>${t(`role_${role}`)}</option>`)}</select>
      <p class="hint" id="key-role-note">${t(`reach_${typed.role}`)}</p></div>
    ${typed.role === "user" && html`<${Field} name="user_id" ...${shared} /><${Field} name="agent_id" hint=${t("key_agent_hint")} ...${shared} />`}
    <${Field} name="expires_at" type="date" min=${localDay(new Date())} hint=${t("key_expires_hint")} ...${shared} />
    <${Field} name="rate" placeholder="600/minute" hint=${t("key_rate_hint")} ...${shared} />
    ${problems.all && html`<p class="hint bad" role="alert">${problems.all}<${RequestId} error=${failure} /></p>`}
    <p class="line"><button class="btn primary" aria-busy=${isBusy ? "true" : null}>${isBusy && html`<${Icon} name="turn" />`}<span>${t(isBusy ? "key_making" : "key_make_do")}</span></button>
      <a class="btn quiet" href=${addressOf("keys")}>${t("key_make_not")}</a></p></form>`;
}

function Revoke({ wanted, app, onRevoked, onClose }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState(null);
  const revoke = async () => {
    setBusy(true);
    try {
      await send("DELETE", `/api-keys/${encodeURIComponent(wanted.id)}`);
      onClose();
      app.notify(t("key_revoked_now", { label: wanted.label || wanted.key_prefix }));
      onRevoked(wanted);
    } catch (error) {
      setProblem(failureOf(error));
      setBusy(false);
    }
  };
  return html`<${Dialog} labelledby="revoke-title" onClose=${onClose}><div class="ask">
    <h2 id="revoke-title">${t("key_revoke_ask", { label: wanted.label || wanted.key_prefix })}</h2>
    ${isOwn(wanted) && html`<div class="say warn"><${Icon} name="warn" /><span>${t("key_revoke_own")}</span></div>`}
    <p class="soft">${t("key_revoke_so", { role: t(`role_${wanted.role}`), prefix: wanted.key_prefix })}</p>
    ${problem && html`<p class="hint bad" role="alert">${t("key_not_revoked", { reason: reasonOf(problem) })}<${RequestId} error=${problem} /></p>`}</div>
    <div class="asks"><button type="button" class="btn" data-first onClick=${onClose}>${t("key_revoke_not")}</button>
      <${Busy} class="primary" busy=${isBusy} label=${t("key_revoke")} busyLabel=${t("key_revoking")} onClick=${revoke} /></div><//>`;
}

function Row({ one, onRevoke }) {
  const end = endOf(one);
  const name = one.label || one.key_prefix;
  return html`<tr class=${end ? "ended" : ""}><td class="label-of"><bdi>${name}</bdi>${isOwn(one) && html` <span class="tag">${t("key_own")}</span>`}</td>
    <td>${t(`role_${one.role}`)}</td><td class="label-of" dir="auto">${[one.user_id, one.agent_id].filter(Boolean).join(" / ") || "–"}</td>
    <td class="mono opt">${one.key_prefix}</td><td class="opt"><${Time} at=${one.created_at} as="day" /></td>
    <td class="opt">${one.last_used_at ? html`<${Time} at=${one.last_used_at} />` : t("key_unused")}</td>
    <td>${end ? html`${t(end[0])} ${one.revoked_at ? html`<${Time} at=${end[1]} as="day" />` : html`<${End} at=${end[1]} />`}`
      : one.expires_at ? html`<${End} at=${one.expires_at} />` : t("key_never")}</td>
    <td class="r">${!end && html`<button type="button" class="btn quiet small" data-id=${one.id} aria-label=${t("key_revoke_one", { label: name })} onClick=${onRevoke}>
      ${t("key_revoke")}</button>`}</td></tr>`;
}

/** The view of the keys; its id "new" shows the form. A key that was made stands in its place until it is confirmed. */
export function Keys({ app, id }) {
  const [keys, setKeys] = useState(null);
  const [problem, setProblem] = useState(null);
  const [wanted, setWanted] = useState(null);
  const [made, setMade] = useState(drafts.get(MADE) ?? null);
  const hasAdder = id !== NEW && !made;
  const [root, adder, next, hadAdder] = [useRef(), useRef(), useRef(null), useRef(hasAdder)];
  const load = async () => {
    setProblem(null);
    try {
      setKeys(await send("GET", "/api-keys"));
    } catch (error) {
      setProblem(failureOf(error));
    }
  };
  useEffect(() => void load(), [id]);
  const ordered = (keys ?? []).toReversed().sort((one, other) => Boolean(endOf(one)) - Boolean(endOf(other)));
  const onMade = (key) => {
    drafts.set(MADE, key);
    setMade(key);
    load();
    // Back does not lead to the form again. Somebody who went elsewhere meanwhile stays there.
    if (readAddress(location.hash).view === "keys") location.replace(addressOf("keys"));
  };
  const onHave = () => {
    drafts.delete(MADE);
    setMade(null);
  };
  const onRevoked = (key) => {
    const valid = ordered.filter((one) => !endOf(one));
    const place = valid.findIndex((one) => one.id === key.id);
    next.current = valid[place + 1] ?? valid[place - 1] ?? key;
    load();
  };
  useLayoutEffect(() => {
    if (!next.current || !isFocusLost()) return;
    (root.current.querySelector(`.keyring button[data-id="${CSS.escape(next.current.id)}"]`) ?? adder.current)?.focus();
    next.current = null;
  }, [keys]);
  useLayoutEffect(() => {
    if (hasAdder && !hadAdder.current && isFocusLost()) adder.current.focus();
    hadAdder.current = hasAdder;
  }, [hasAdder]);
  return html`<section class="view" ref=${root}><div class="page"><div class="head"><div><h1>${t("keys")}</h1><p>${t("keys_what")}</p></div>
      ${hasAdder && html`<a class="btn primary" ref=${adder} href=${addressOf("keys", NEW)}><${Icon} name="plus" /><span>${t("key_make")}</span></a>`}</div>
    ${made && html`<${Made} made=${made} app=${app} onHave=${onHave} />`}
    ${id === NEW && !made && html`<${Make} app=${app} onMade=${onMade} />`}
    ${problem && html`<${Failed} error=${problem} onRetry=${load}>${t("keys_not_loaded", { reason: reasonOf(problem) })}<//>`}
    ${keys === null ? !problem && html`<${Bones} rows=${4} />`
    : keys.length === 0 ? html`<div class="empty"><p class="read">${t("keys_none")}</p><p class="soft">${t("keys_none_do")}</p></div>`
    : html`<section class="sect"><div class="scroll"><table class="table keyring"><thead><tr><th>${t("key_label")}</th><th>${t("key_role")}</th><th>${t("key_user_id")}</th>
      <th class="opt">${t("key_start")}</th><th class="opt">${t("key_created")}</th><th class="opt">${t("key_used")}</th><th>${t("key_valid")}</th><td /></tr></thead>
    <tbody>${ordered.map((one) => html`<${Row} key=${one.id} one=${one} onRevoke=${() => setWanted(one)} />`)}</tbody></table></div></section>`}
    ${wanted && html`<${Revoke} wanted=${wanted} app=${app} onRevoked=${onRevoked} onClose=${() => setWanted(null)} />`}
  </div></section>`;
}
