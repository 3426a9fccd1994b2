// The slider of the graph: bars are memories per day, and its thumb is the day that is shown.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { send } from "./api.js";
import { beginOfDay } from "./days.js";
import { day, localDay, month, t } from "./i18n.js";

const DAY = 86_400_000;
const [WIDTH, HEIGHT] = [400, 26];
const MONTHS = 4;
// Milliseconds after the last step of the thumb before the day is shown: a key that is held down makes many.
const PAUSE = 300;

const dayNumber = (text) => Math.round(Date.parse(text) / DAY);
const dayText = (number) => new Date(number * DAY).toISOString().slice(0, 10);

function Bars({ days, first, last, shown }) {
  const [most, span] = [Math.max(...days.map((one) => one.memories)), Math.max(1, last - first)];
  const width = Math.min(12, Math.max(1.5, (0.8 * WIDTH) / (span + 1)));
  return html`<svg viewBox=${`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">${days.map((one) => {
    const number = dayNumber(one.day);
    const height = Math.max(2, (HEIGHT - 2) * (one.memories / most));
    return html`<rect key=${one.day} class=${number > shown ? "b off" : "b"} x=${((number - first) / span) * (WIDTH - width)} y=${HEIGHT - height}
      width=${width} height=${height} />`;
  })}</svg>`;
}

/**
 * `asOf` is the day that is shown, "" for today; `onChange` is called with a day once the thumb rests, with "" for today. `truth` is "both" if memories that are
 * no longer true are counted, else "now".
 */
export function Ruler({ app, asOf, truth, onChange }) {
  const [days, setDays] = useState([]);
  const today = dayNumber(localDay(new Date()));
  const chosen = asOf ? dayNumber(asOf) : today;
  const [shown, setShown] = useState(chosen);
  const timer = useRef(0);
  useLayoutEffect(() => {
    setShown(chosen);
    return () => clearTimeout(timer.current);
  }, [chosen]);
  useEffect(() => {
    const query = { user_id: app.user, show_retired: truth === "both" || undefined, utc_offset: -new Date().getTimezoneOffset() };
    send("GET", "/graph/days", { query }).then(setDays, () => {});
  }, [app.user, asOf, truth]);
  const past = days.filter((one) => dayNumber(one.day) <= today);
  const counted = past.reduce((sum, one) => sum + one.memories, 0);
  const first = Math.min(chosen, past.length ? dayNumber(past[0].day) : today);
  const months = Array.from({ length: MONTHS }, (_, place) => first + ((today - first) * place) / (MONTHS - 1));
  const isLong = today - first > 300;
  const latest = useRef(onChange);
  latest.current = onChange;
  const choose = (number) => {
    clearTimeout(timer.current);
    timer.current = setTimeout(() => number !== chosen && latest.current(number >= today ? "" : dayText(number)), PAUSE);
  };
  const words = day(beginOfDay(dayText(shown)));
  return html`<div class="clock"><output><b>${t("graph_as_of", { day: words })}</b><small>${shown >= today ? t("graph_now") : "\u00a0"}</small></output>
    <div class="ruler" title=${t(`graph_bars_${truth}`, { n: counted })}>${past.length > 0 && html`<${Bars} days=${past} first=${first} last=${today} shown=${shown} />`}
      <input type="range" min=${first} max=${today} value=${shown} aria-label=${t("graph_day")} aria-valuetext=${words} disabled=${first === today}
        onInput=${(event) => setShown(Number(event.target.value))} onChange=${(event) => choose(Number(event.target.value))} />
      <div class="months" aria-hidden="true">${today - first > 60 && months.map((number) => html`<span key=${number}>
        ${month(beginOfDay(dayText(Math.round(number))), isLong)}</span>`)}</div></div>
    <button type="button" class="btn quiet small" disabled=${shown >= today} onClick=${() => onChange("")}><span>${t("graph_today")}</span></button></div>`;
}
