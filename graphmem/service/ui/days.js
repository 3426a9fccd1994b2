// Local days as addresses and date fields write them: YYYY-MM-DD.

import { localDay } from "./i18n.js";

/** Returns the day that a text of an address is, "" if it is none. */
export function readDay(text = "") {
  if (!/^[1-9]\d{3}-\d\d-\d\d$/.test(text)) return "";
  const date = new Date(text);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(text) ? text : ""; // browsers make 2 March of 30 February
}

/** Returns the day before today that a text of an address is, "" if it is none. */
export function readPastDay(text) {
  const day = readDay(text);
  return day < localDay(new Date()) ? day : "";
}

/** Tells whether a memory is no longer true at a moment. */
export function isPast({ valid_to: end }, moment = new Date()) {
  return end !== null && end !== undefined && new Date(end) <= moment;
}

/** Returns the time at which a day, or one of the days after it, begins. */
export function beginOfDay(day, daysLater = 0) {
  const begin = new Date(`${day}T00:00`);
  begin.setDate(begin.getDate() + daysLater);
  return begin.toISOString();
}

/** Returns the last millisecond of a day, at which all that it brought is valid, and nothing of the next day. */
export function endOfDay(day) {
  return new Date(Date.parse(beginOfDay(day, 1)) - 1).toISOString();
}
