// The path to a hit, drawn as a chain: memories, and between two of them the name or the relation that leads on.

import { html } from "./vendor/htm-preact.js";
import { addressOf } from "./addresses.js";
import { t, written } from "./i18n.js";
import { askedWords, splitAtNames, splitAtWords } from "./marks.js";
import { Chip, Time, speakerOf } from "./parts.js";

// Beside each other stand so many memories at most; more stand below each other.
const MAX_BESIDE = 4;
// Steps between two messages of a session, by the names that paths have for them.
export const NEXT_MESSAGE = "next in the conversation";
export const PREVIOUS_MESSAGE = "previous in the conversation";
const NEIGHBOURS = { [NEXT_MESSAGE]: "path_next", [PREVIOUS_MESSAGE]: "path_previous" };

/** Returns the steps from the first memory on; a name before it is one of the question. */
function drawnSteps(path) {
  return path.slice(Math.max(0, path.findIndex((step) => step.type === "memory")));
}

/** Returns the number of memories and of names of a path as it is drawn. */
export function countSteps(path) {
  const count = (type) => drawnSteps(path).filter((step) => step.type === type).length;
  return { memories: count("memory"), names: count("entity") };
}

/** The words of a memory; names are underlined in the colour of their type, words of the question with dots. */
function Words({ text, names, asked }) {
  const types = new Map(names.flatMap(({ name, names: all = [name], entity_type: type }) => all.map((one) => [one, type.toLowerCase()])));
  const pieces = (part) => splitAtWords(part, asked).map((piece, place) => (place % 2 ? html`<b class="asked">${piece}</b>` : piece));
  return splitAtNames(text, [...types.keys()]).map((part, place) =>
    place % 2 ? html`<mark class=${types.get(part)}>${part}</mark>` : pieces(part));
}

function Stop({ step, names, role, asked, user, isEnd }) {
  const who = speakerOf({ ...step, user_id: user });
  return html`<li class=${isEnd ? "stop end" : "stop"}><span class="at">${role && html`<span class="role">${role} · </span>`}
      ${who && html`<b ...${written(who)}>${who}</b> `}${step.at && html`<${Time} at=${step.at} as="day" />`}</span>
    <p class="read" ...${written(step.memory)}><a href=${addressOf("memories", step.id)}>
      <${Words} text=${step.memory} names=${names} asked=${asked} /></a></p></li>`;
}

function Link({ step }) {
  if (step.type === "entity") {
    return html`<li class=${`link ${step.entity_type.toLowerCase()}`}><${Chip} name=${step.name} type=${step.entity_type} /></li>`;
  }
  const neighbour = NEIGHBOURS[step.predicate];
  return html`<li class=${neighbour ? "link next" : "link"}><span class="pred" dir="auto">${neighbour ? t(neighbour) : step.predicate}</span></li>`;
}

/**
 * Draws `path`, that of a hit's explanation: `{type: "memory", id, memory, at, role, actor_id}`, `{type: "entity", key, name, entity_type}` (`names`,
 * if there are several) and `{type: "relation", predicate}` in turn.
 *
 * `question`: its words are marked in the first memory. `user`: whose memory it is. `isAnswer`: the path of the first hit. `short`: one below the other,
 * for panels. `appears`: from left to right, once.
 */
export function Chain({ path, question = "", user, isAnswer = false, short = false, appears = false }) {
  const steps = drawnSteps(path);
  const last = steps.length - 1;
  const isLong = countSteps(path).memories > MAX_BESIDE;
  const asked = askedWords(question);
  const roleOf = (place) => (place === last ? t(isAnswer ? "path_answer" : "path_found") : place === 0 ? t("path_start") : "");
  const classes = ["chain", short && "short", isLong && "long", appears && "appears"].filter(Boolean).join(" ");
  return html`<div class=${classes}><ol aria-label=${t("path")}>${steps.map((step, place) => step.type === "memory"
    ? html`<${Stop} key=${place} step=${step} role=${roleOf(place)} user=${user} isEnd=${place === last}
      names=${[steps[place - 1], steps[place + 1]].filter((one) => one?.type === "entity")} asked=${place === 0 ? asked : new Set()} />`
    : html`<${Link} key=${place} step=${step} />`)}</ol></div>`;
}
