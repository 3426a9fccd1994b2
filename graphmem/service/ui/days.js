// Local days as addresses and date fields write them: YYYY-MM-DD.

/** Returns the day that a text of an address is, "" if it is none. */
export function readDay(text = "") {
  return /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)) ? text : "";
}

/** Returns the time at which a day, or one of the days after it, begins. */
export function beginOfDay(day, daysLater = 0) {
  const begin = new Date(`${day}T00:00`);
  begin.setDate(begin.getDate() + daysLater);
  return begin.toISOString();
}
