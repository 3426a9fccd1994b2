// The view of the chats' settings, and a question to try them with.

import { html, useCallback, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { ApiError, failureOf, send } from "./api.js";
import { drafts } from "./drafts.js";
import { number, reasonOf, t } from "./i18n.js";
import { Bones, Busy, Failed, Icon, isFocusLost, RequestId } from "./parts.js";
import { TryOut } from "./try_out.js";

const SWITCHES = ["recall", "save", "rewrite"];
const NUMBERS = ["top_k", "max_chars", "rounds"];
const PLACES = ["system", "user"];
// The user of the open view, and the function that shows other settings in it; null while it is closed.
let shown = null;

/** Like `useState`, for what was typed in a part of the view: it outlives the view. */
function useTyped(part, user, first) {
  const key = JSON.stringify([part, user]);
  const [value, setValue] = useState(drafts.get(key) ?? first);
  const keep = (change) =>
    setValue((now) => {
      const next = change(now);
      if (JSON.stringify(next) === JSON.stringify(first)) drafts.delete(key);
      else drafts.set(key, next);
      return next;
    });
  return [value, keep];
}

/** Returns the value that is set here, null if the setting is inherited. */
function ownOf(answer, draft, name) {
  return name in draft ? draft[name] : (answer.own[name]?.value ?? null);
}

/** Returns the value to be stored or tried: numbers are typed as text. */
function valueOf(name, value) {
  return NUMBERS.includes(name) && value !== null ? Number(value) : value;
}

/** Returns the sentence about an unusable value, "" for a usable one. */
function problemOf(answer, name, value) {
  const most = answer.maxima[name];
  if (value === null || most === undefined) return "";
  if (name === "rewrite_prompt") {
    const { length } = [...value];
    return length > most ? t("c_long", { most, length }) : "";
  }
  const text = String(value).trim();
  return /^\d+$/.test(text) && Number(text) >= 1 && Number(text) <= most ? "" : t("c_number", { least: 1, most });
}

/** Returns the draft with one value typed; one that is stored or inherited anyway is no change. */
function withTyped(answer, draft, name, value) {
  const { [name]: _, ...others } = draft;
  const own = answer.own[name]?.value ?? null;
  const inherited = answer.inherited[name].value;
  const isSame = own === null ? value === null || String(value) === String(inherited) : value !== null && String(value) === String(own);
  return isSame ? others : { ...others, [name]: value };
}

function valueName(name, value) {
  if (SWITCHES.includes(name)) return t(value ? "c_on" : "c_off");
  return name === "inject" ? t(`c_at_${value}`) : number(value);
}

/** Loads the settings of a user (undefined: of the key's, or of all), and changes them. */
function useSettings(app) {
  const [loaded, setLoaded] = useState({ answer: null, problem: null });
  const query = { user_id: app.user };
  const setAnswer = (answer) => setLoaded({ answer, problem: null });
  const load = useCallback(async () => {
    setLoaded({ answer: null, problem: null });
    try {
      setAnswer(await send("GET", "/settings", { query }));
    } catch (error) {
      setLoaded({ answer: null, problem: failureOf(error) });
    }
  }, [app.user]);
  useEffect(() => void load(), [load]);
  useEffect(() => {
    shown = { user: app.user, setAnswer };
    return () => {
      shown = null;
    };
  }, []);
  const save = async (values) => {
    const before = loaded.answer;
    const saved = await send("PUT", "/settings", { query, body: values });
    setAnswer(saved);
    const takeBack = async () => {
      const now = await send("GET", "/settings", { query });
      const isSame = (name) => JSON.stringify(now.own[name]) === JSON.stringify(saved.own[name]);
      if (!Object.keys(values).every(isSame)) throw new ApiError(400, "");
      const former = Object.fromEntries(Object.keys(values).map((name) => [name, before.own[name]?.value ?? null]));
      const restored = await send("PUT", "/settings", { query, body: former });
      if (shown?.user === app.user) shown.setAnswer(restored);
    };
    app.changed({ takeBack }, t("saved"));
  };
  return { ...loaded, load, save };
}

/** Says where a setting is set, unless nobody has set it; one that is set here can be given back to what it would be otherwise. */
function Inherit({ answer, name, isOwn, onTyped }) {
  const { value, source } = answer.inherited[name];
  if (!isOwn) return source === "all_users" && html`<p class="under full"><span>${t("c_set_all")}</span></p>`;
  const words = t(`c_back_${source}`, { value: valueName(name, value) });
  const giveBack = (event) => {
    event.currentTarget.closest(".set").querySelector("input, .seg button").focus(); // the button goes
    onTyped(name, null);
  };
  return html`<p class="under full"><span>${t(answer.user_id === null ? "c_set_all" : "c_set_user")}</span>
    <button type="button" class="btn quiet small" aria-label=${t("c_of", { name: t(`c_${name}`), words })} onClick=${giveBack}>
      <${Icon} name="undo" /><span>${words}</span></button></p>`;
}

function Control({ name, value, problem, onTyped }) {
  const described = `c-${name}-do${problem ? ` c-${name}-problem` : ""}`;
  const names = { id: `c-${name}`, "aria-describedby": described };
  if (SWITCHES.includes(name)) {
    return html`<input class="switch" type="checkbox" role="switch" ...${names} checked=${value}
      onChange=${(event) => onTyped(name, event.target.checked)} />`;
  }
  if (name === "inject") {
    return html`<div class="seg" role="group" aria-labelledby=${`c-${name}-name`} aria-describedby=${described}>${PLACES.map((place) => html`<button
      type="button" key=${place} aria-pressed=${String(value === place)} onClick=${() => onTyped(name, place)}>${t(`c_at_${place}`)}</button>`)}</div>`;
  }
  return html`<input class="field n num" inputmode="numeric" autocomplete="off" ...${names} value=${value} aria-invalid=${problem ? "true" : null}
    onInput=${(event) => onTyped(name, event.target.value)} />`;
}

function Prompt({ answer, draft, isReadOnly, onTyped }) {
  const own = ownOf(answer, draft, "rewrite_prompt");
  const { value } = answer.inherited.rewrite_prompt;
  const inherited = value ?? answer.built_in_prompt;
  const problem = problemOf(answer, "rewrite_prompt", own);
  const words = `c_prompt${own === null ? (value === null ? "_ours" : "_shared") : value === null ? "_own" : "_own_shared"}`;
  if (isReadOnly) return html`<div class="full"><h3 class="label">${t("c_rewrite_prompt")}</h3><pre>${own ?? inherited}</pre></div>`;
  const type = (text) => onTyped("rewrite_prompt", text.trim() ? text : null);
  const reset = () => {
    document.getElementById("c-prompt").focus(); // the button is disabled then
    type("");
  };
  return html`<div class="full"><label class="label" for="c-prompt">${t("c_rewrite_prompt")}</label>
    <textarea class="field mono" id="c-prompt" rows="7" placeholder=${inherited} value=${own ?? ""} aria-invalid=${problem ? "true" : null}
      aria-describedby=${`c-prompt-do${problem ? " c-prompt-problem" : ""}`} onInput=${(event) => type(event.target.value)} />
    ${problem && html`<p class="hint bad" id="c-prompt-problem">${problem}</p>`}
    <p class="under"><span id="c-prompt-do">${t(words)}</span>
      <button type="button" class="btn quiet small" disabled=${own === null} title=${own === null ? t(words) : null} onClick=${reset}>
        <${Icon} name="undo" /><span>${t("c_reset")}</span></button></p></div>`;
}

/** One setting: its name, what it does, its control. */
function Setting({ answer, draft, name, isReadOnly, onTyped, children }) {
  const own = ownOf(answer, draft, name);
  const value = own ?? answer.inherited[name].value;
  const problem = problemOf(answer, name, own);
  const hasLabel = !isReadOnly && name !== "inject";
  return html`<div class="set"><div><h2 id=${`c-${name}-name`}>${hasLabel ? html`<label for=${`c-${name}`}>${t(`c_${name}`)}</label>` : t(`c_${name}`)}</h2>
      <p id=${`c-${name}-do`}>${t(`c_${name}_do`)}</p></div>
    ${isReadOnly ? html`<b class="num">${valueName(name, value)}</b>`
      : html`<${Control} name=${name} value=${value} problem=${problem} onTyped=${onTyped} />`}
    ${problem && html`<p class="hint bad full" id=${`c-${name}-problem`}>${problem}</p>`}
    ${!isReadOnly && html`<${Inherit} answer=${answer} name=${name} isOwn=${own !== null} onTyped=${onTyped} />`}
    ${children}</div>`;
}

function Settings({ answer, draft, setDraft, isReadOnly, onSave }) {
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const [failure, setFailure] = useState(null);
  const [root, state] = [useRef(), useRef()];
  const changes = Object.keys(draft);
  const onTyped = (name, value) => {
    setProblem("");
    setDraft((now) => withTyped(answer, now, name, value));
  };
  const save = async () => {
    if (isBusy || !changes.length) return;
    setFailure(null);
    if (changes.some((name) => problemOf(answer, name, draft[name]))) {
      setProblem(t("c_invalid"));
      root.current.querySelector('[aria-invalid="true"]').focus();
      return;
    }
    setBusy(true);
    try {
      await onSave(Object.fromEntries(changes.map((name) => [name, valueOf(name, draft[name])])));
      setDraft((now) => Object.fromEntries(Object.entries(now).filter(([name, value]) => value !== draft[name])));
      setProblem("");
    } catch (error) {
      setFailure(failureOf(error));
      setProblem(t("not_saved", { reason: reasonOf(error) }));
    }
    setBusy(false);
  };
  const discard = () => {
    setDraft(() => ({}));
    setProblem("");
    setFailure(null);
  };
  const hasChanges = changes.length > 0;
  useLayoutEffect(() => {
    if (!hasChanges && !isBusy && isFocusLost()) state.current?.focus(); // the button that was pressed is disabled or gone
  }, [hasChanges, isBusy]);
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    save();
  };
  const setting = (name, children) => html`<${Setting} key=${name} answer=${answer} draft=${draft} name=${name} isReadOnly=${isReadOnly}
    onTyped=${onTyped}>${children}<//>`;
  return html`<div ref=${root} onKeyDown=${isReadOnly ? null : onKeyDown}>
    ${setting("recall")} ${setting("save")}
    ${setting("rewrite", html`${!answer.language_model && html`<p class="say full"><${Icon} name="dash" /><span>${t("c_no_model")}</span></p>`}
      <${Prompt} answer=${answer} draft=${draft} isReadOnly=${isReadOnly} onTyped=${onTyped} />`)}
    ${setting("top_k")} ${setting("max_chars")} ${setting("inject")} ${setting("rounds")}
    ${!isReadOnly && html`<div class="saved">
      <span tabindex="-1" ref=${state} role="status" class=${problem ? "hint bad" : ""}>${problem || (hasChanges ? t("c_changes", { n: changes.length }) : t("c_no_changes"))}<${RequestId} error=${failure} /></span>
      ${hasChanges && html`<button type="button" class="btn quiet" disabled=${isBusy} onClick=${discard}><span>${t("c_discard")}</span></button>`}
      <${Busy} class="primary" busy=${isBusy} label=${t("save")} busyLabel=${t("saving")} disabled=${isBusy || !hasChanges}
        title=${hasChanges ? null : t("c_no_changes")} onClick=${save} /></div>`}
  </div>`;
}

/** Returns the settings as the form shows them, to be tried. */
function triedSettings(answer, draft) {
  const value = (name) => valueOf(name, ownOf(answer, draft, name) ?? answer.inherited[name].value);
  const { recall, rewrite, top_k, max_chars } = Object.fromEntries(["recall", "rewrite", "top_k", "max_chars"].map((name) => [name, value(name)]));
  return { recall, rewrite, top_k, max_chars, rewrite_prompt: value("rewrite_prompt") ?? answer.built_in_prompt };
}

export function Chat({ app }) {
  const { answer, problem, load, save } = useSettings(app);
  const [draft, setDraft] = useTyped("settings", app.user, {});
  const [words, setWords] = useTyped("question", app.user, { user: "", assistant: "", question: "" });
  const isReadOnly = app.caller.agent_id !== null;
  const isInvalid = answer !== null && Object.keys(draft).some((name) => problemOf(answer, name, draft[name]));
  return html`<section class="view"><div class="page">
    <div class="head"><div><h1>${t("chat")}</h1><p>${t("c_lead")}</p></div></div>
    ${isReadOnly && html`<p class="say"><${Icon} name="lock" /><span>${t("c_read_only")}</span></p>`}
    ${answer?.user_id === null && html`<p class="say"><${Icon} name="dash" /><span>${t("c_of_all")}</span></p>`}
    ${problem && html`<${Failed} error=${problem} onRetry=${load}>${t("c_not_loaded", { reason: reasonOf(problem) })}<//>`}
    ${!answer && !problem && html`<${Bones} rows=${6} />`}
    ${answer && html`<div class="two">
      <${Settings} answer=${answer} draft=${draft} setDraft=${setDraft} isReadOnly=${isReadOnly} onSave=${save} />
      <${TryOut} app=${app} words=${words} setWords=${setWords} settings=${triedSettings(answer, draft)} unsaved=${Object.keys(draft).length}
        isInvalid=${isInvalid} hasModel=${answer.language_model} /></div>`}
  </div></section>`;
}
