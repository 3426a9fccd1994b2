// Tries a question with settings that need not be saved: the steps of the recall, and the block that a chat would get.

import { html, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { failureOf, send } from "./api.js";
import { reasonOf, t, written } from "./i18n.js";
import { Busy, Icon, IconButton, RequestId } from "./parts.js";

const STEPS = ["question", "conversation", "rewrite"];

/** Returns the sentence about what one step found. */
function foundBy({ found: n, enough, relevance, relevance_needed: needed }) {
  if (relevance === null) return t("c_found_none");
  const values = { n, best: relevance.toFixed(2), needed: needed.toFixed(2) };
  if (enough && !n) return t("c_enough_nothing");
  if (enough) return t(relevance >= needed ? "c_enough_relevant" : "c_enough_name", values);
  return t(n ? "c_far" : "c_far_none", values);
}

/** Returns why a step was left out. */
function leftOut(kind, { steps, settings, hasModel, failed, rewrite_failed: rewriteFailed }) {
  const last = steps.at(-1);
  if (last?.enough) return t("c_not_needed");
  if (kind === "rewrite" && rewriteFailed) return t(`c_rewrite_${rewriteFailed}`);
  if (failed) return "";
  if (last?.relevance === null && last.kind !== "rewrite" && !rewriteFailed) return t("c_not_empty");
  if (kind === "conversation") return t("c_not_alone");
  if (!hasModel) return t("c_not_model");
  return settings.rewrite ? "" : t("c_not_on");
}

function Step({ kind, result }) {
  const step = result.steps.find((one) => one.kind === kind);
  const title = t(`c_step_${kind}`);
  if (!step) return html`<li class="unused"><h3>${title}</h3><p class="res">${leftOut(kind, result)}</p></li>`;
  return html`<li class=${step.enough ? "hit-it" : ""}><h3><span>${title}</span><small class="num">${t("c_ms", { ms: Math.round(step.took_ms) })}</small></h3>
    <p class="read" ...${written(step.query)}>${step.query}</p>
    <p class=${step.enough ? "res yes" : "res"}><${Icon} name=${step.enough ? "check" : "dash"} /><span>${foundBy(step)}</span></p></li>`;
}

function Result({ app, result }) {
  const { block, failed, settings } = result;
  if (!settings.recall) return html`<p class="say"><${Icon} name="dash" /><span>${t("c_recall_off")}</span></p>`;
  const values = { chars: [...block].length, most: settings.max_chars, ms: Math.round(result.took_ms) };
  const copy = () => app.copy(block);
  return html`${failed && html`<p class="say warn"><${Icon} name="warn" /><span>${failed === "timeout" ? t("c_late") : t("c_failed", { failed })}</span></p>`}
    <ol class="steps">${STEPS.map((kind) => html`<${Step} key=${kind} kind=${kind} result=${result} />`)}</ol>
    <div class="block"><h3><span>${t("c_block")}</span><small class="num">${t("c_block_size", values)}</small>
        ${block && html`<${IconButton} icon="copy" label=${t("copy")} onClick=${copy} />`}</h3>
      ${block ? html`<pre tabindex="0" ...${written(block)}>${block}</pre>` : html`<p class="soft">${t("c_block_none")}</p>`}</div>`;
}

/** A line of the conversation before the question, of the role. */
function Turn({ role, name, words, onTyped }) {
  const text = words[role];
  return html`<div class="quote"><label class="who" title=${name} for=${`c-turn-${role}`} ...${written(name)}>${name}</label>
    <textarea class="field read" rows="1" id=${`c-turn-${role}`} placeholder=${t(`c_turn_${role}`)} ...${written(text)} value=${text}
      onInput=${(event) => onTyped(role, event.target.value)} /></div>`;
}

/** `settings` are those of the form; `unsaved` counts those that are not saved. `words` has the question and the turns before it, by role. */
export function TryOut({ app, words, setWords, settings, unsaved, isInvalid, hasModel }) {
  const [result, setResult] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const [problem, setProblem] = useState("");
  const [failure, setFailure] = useState(null);
  const field = useRef();
  useLayoutEffect(() => app.keys(app.seesAll ? {} : { "/": () => field.current.focus() }), [app.seesAll]);
  if (app.seesAll) return html`<div class="try"><h2>${t("c_try_title")}</h2><p class="soft">${t("c_try_user")}</p></div>`;
  const onTyped = (name, text) => setWords((now) => ({ ...now, [name]: text }));
  const ask = async () => {
    if (isBusy) return;
    if (!words.question.trim()) return field.current.focus();
    setFailure(null);
    if (isInvalid) return setProblem(t("c_invalid"));
    setBusy(true);
    setProblem("");
    const recent = ["user", "assistant"].map((role) => ({ role, content: words[role] })).filter((one) => one.content.trim());
    try {
      const answer = await send("POST", "/recall", { body: { user_id: app.user, question: words.question, recent, ...settings } });
      setResult({ ...answer, settings, unsaved, hasModel });
    } catch (error) {
      setFailure(failureOf(error));
      setProblem(t("c_not_tried", { reason: reasonOf(error) }));
    }
    return setBusy(false);
  };
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    ask();
  };
  const n = result?.unsaved ?? unsaved;
  const you = app.user ?? app.caller.user_id ?? t("you");
  return html`<div class="try" onKeyDown=${onKeyDown}><h2>${t("c_try_title")}</h2>
    <div class="turns" role="group" aria-label=${t("c_turns")}><${Turn} role="user" name=${you} words=${words} onTyped=${onTyped} />
      <${Turn} role="assistant" name=${t("c_ai")} words=${words} onTyped=${onTyped} /></div>
    <form onSubmit=${(event) => (event.preventDefault(), ask())}>
      <input class="field" ref=${field} aria-label=${t("c_question")} placeholder=${t("c_question_hint")} autocomplete="off" value=${words.question}
        ...${written(words.question)} aria-invalid=${problem ? "true" : null} aria-describedby=${problem ? "c-try-problem" : null}
        onInput=${(event) => onTyped("question", event.target.value)} />
      <${Busy} type="submit" busy=${isBusy} label=${t("c_try")} busyLabel=${t("c_trying")} /></form>
    ${problem && html`<p class="hint bad" id="c-try-problem" role="alert">${problem}<${RequestId} error=${failure} /></p>`}
    ${n > 0 && html`<p class="hint">${t("c_try_unsaved", { n })}</p>`}
    <div aria-live="polite" aria-busy=${isBusy ? "true" : null}>${result && html`<${Result} app=${app} result=${result} />`}</div></div>`;
}
