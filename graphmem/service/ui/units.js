// Numbers with their units, as the language writes them.

import { locale, t } from "./i18n.js";

const KILO = 1000;
const SIZES = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
// Seconds in a unit, and its words, largest first.
const SPANS = [[86_400, "span_days"], [3600, "span_hours"], [60, "span_minutes"], [1, "span_seconds"]];

/** Returns a large number in short form, such as 2.04M. */
export function compact(n) {
  return new Intl.NumberFormat(locale(), { notation: "compact", maximumSignificantDigits: 3 }).format(n);
}

/** Returns a number of bytes, such as 212 MB. */
export function bytes(n) {
  const power = Math.min(SIZES.length - 1, n < 1 ? 0 : Math.floor(Math.log(n) / Math.log(KILO)));
  const style = { style: "unit", unit: SIZES[power], unitDisplay: power ? "short" : "long", maximumSignificantDigits: 3 };
  return new Intl.NumberFormat(locale(), style).format(n / KILO ** power);
}

/** Returns money without its currency, which the service does not know. */
export function money(n) {
  return new Intl.NumberFormat(locale(), { minimumFractionDigits: 2, maximumFractionDigits: n < 0.1 ? 4 : 2 }).format(n);
}

/** Returns a time span in its largest unit, such as 40 s. */
export function span(seconds) {
  const [size, key] = SPANS.find(([length]) => seconds >= length) ?? SPANS.at(-1);
  return t(key, { n: Math.round(seconds / size) });
}

/** Returns a time in milliseconds, such as 62 ms. */
export function milliseconds(n) {
  return t("span_milliseconds", { n: n < 10 ? Math.round(n * 10) / 10 : Math.round(n) });
}
