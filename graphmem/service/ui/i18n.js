// The words of the page, in English and Chinese, and dates and numbers as both write them.

import { language } from "./preferences.js";
import chain from "./words/chain.js";
import chat from "./words/chat.js";
import frame from "./words/frame.js";
import graph from "./words/graph.js";
import keys from "./words/keys.js";
import lifecycle from "./words/lifecycle.js";
import memories from "./words/memories.js";
import search from "./words/search.js";
import system from "./words/system.js";

const WORDS = { ...frame, ...chain, ...chat, ...graph, ...keys, ...lifecycle, ...memories, ...search, ...system };

export const TYPES = {
  Person: ["Person", "人物"],
  Organization: ["Organization", "组织"],
  Place: ["Place", "地点"],
  Event: ["Event", "事件"],
  Object: ["Thing", "物品"],
  Concept: ["Idea", "概念"],
  Time: ["Time", "时间"],
  Other: ["Other", "其他"],
};

const index = () => (language() === "zh" ? 1 : 0);
export const locale = () => (language() === "zh" ? "zh-CN" : "en-GB");

function pattern(key, n) {
  const [one, several = one] = WORDS[key][index()].split("|");
  return n === 1 ? one : several;
}

/** Returns the words of a key. `values.n`, a number, chooses between one and several. */
export function t(key, values = {}) {
  return pattern(key, values.n).replace(/\{(\w+)\}/g, (_, name) =>
    typeof values[name] === "number" ? number(values[name]) : isolated(values[name]),
  );
}

// Letters that are written from right to left: Hebrew, Arabic and its neighbours, and their other forms.
const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;

/** Returns a text that keeps its direction to itself: one with letters from right to left between the characters for that. */
export function isolated(text) {
  return RIGHT_TO_LEFT.test(text) ? `\u2068${text}\u2069` : text;
}

/** Returns the words of a key as a list, with nodes in place of {name}. */
export function nodes(key, values) {
  return pattern(key, values.n).split(/\{(\w+)\}/).map((part, place) => (place % 2 ? values[part] : part));
}

/** Returns the name of an entity type. */
export function typeName(type) {
  return (TYPES[type] ?? TYPES.Other)[index()];
}

/** Returns a number as the language writes it. */
export function number(n) {
  return new Intl.NumberFormat(locale()).format(n);
}

/** Returns a share or a cosine with two digits. */
export function decimal(n) {
  return new Intl.NumberFormat(locale(), { minimumFractionDigits: 2, maximumFractionDigits: 2 }).format(n);
}

/** Returns the place of a number, such as 1st. */
export function ordinal(n) {
  const endings = { one: "st", two: "nd", few: "rd", other: "th" };
  return index() ? `第 ${number(n)}` : `${number(n)}${endings[new Intl.PluralRules("en", { type: "ordinal" }).select(n)]}`;
}

/** Returns texts as a list, such as "a, b and c". */
export function list(texts) {
  return new Intl.ListFormat(locale(), { type: "conjunction" }).format(texts);
}

function format(date, options) {
  return new Intl.DateTimeFormat(locale(), options).format(date);
}

/** Returns the time of day, such as 20:41. */
export function time(iso) {
  return format(new Date(iso), { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

/** Returns the day, with the year unless it is this year's and `short`. */
export function day(iso, { short = false } = {}) {
  const date = new Date(iso);
  const year = short && date.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" };
  return format(date, { day: "numeric", month: "long", ...year });
}

/** Returns the day of the week. */
export function weekday(iso) {
  return format(new Date(iso), { weekday: "long" });
}

/** Returns day and time, such as "2 June 2025, 20:41". */
export function moment(iso) {
  return `${day(iso)}${index() ? " " : ", "}${time(iso)}`;
}

/** Returns the month, with the year if `withYear`. */
export function month(iso, withYear) {
  return format(new Date(iso), withYear ? { month: "short", year: "numeric" } : { month: "long" });
}

/** Returns the time in UTC, for titles. */
export function utc(iso) {
  return `${new Date(iso).toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** Returns the day as YYYY-MM-DD, in local time. */
export function localDay(iso) {
  const date = new Date(iso);
  const two = (n) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}

/** Returns the language of a text for its element: Chinese if it has Han characters and no kana, otherwise unknown. */
export function languageOf(text) {
  if (/[\u3040-\u30ff]/.test(text)) return "ja";
  return /\p{Script=Han}/u.test(text) ? "zh-CN" : "";
}

/** Returns the attributes of an element with a text that somebody wrote: its language, and that its first letter decides where it begins. */
export function written(text) {
  return { lang: languageOf(text), dir: "auto" };
}

/** Returns the reason of a failed request as a sentence: words of the page about its kind, with what the service says about it where that tells more. */
export function reasonOf(error) {
  if (error.status === undefined) throw error; // a fault of the page
  const { code, status, detail } = error;
  if (!code) return detail || t("no_answer");
  const key = [code, status].map((kind) => `problem_${kind}`).find((name) => name in WORDS) ?? "problem_other";
  return t(key, { detail });
}
