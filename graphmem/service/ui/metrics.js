// Reads histograms from the metrics of the service (`GET /metrics`, the text format of Prometheus).

const BUCKET = /^graphmem_(\w+)_bucket\{(.*)\} ([\d.e+]+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** Returns the histograms by name: a map from the value of `label` ("" without it) to [[upper bound, number up to it], …]. */
export function histograms(text, label) {
  const found = {};
  for (const line of text.split("\n")) {
    const [, name, labels, count] = line.match(BUCKET) ?? [];
    if (!name) continue;
    const values = Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, value]) => [key, value]));
    const series = ((found[name] ??= {})[values[label] ?? ""] ??= new Map());
    const bound = values.le === "+Inf" ? Infinity : Number(values.le);
    series.set(bound, (series.get(bound) ?? 0) + Number(count)); // one histogram per value of `label`, whatever its other labels
  }
  return found;
}

/** Returns the number of measurements of a histogram. */
export function totalOf(series) {
  return series?.get(Infinity) ?? 0;
}

/** Returns the bound (seconds) within which this share of the measurements was; Infinity above the last bound, null without any. */
export function within(series, share) {
  const total = totalOf(series);
  if (!total) return null;
  return Math.min(...[...series].filter(([, count]) => count >= share * total).map(([bound]) => bound));
}
