// Figures that are read again and again while somebody looks at them.

import { useEffect, useState } from "./vendor/htm-preact.js";
import { currentKey } from "./preferences.js";

// Milliseconds between two readings, and for how many times its own duration a slow one holds: a large ledger is not read all the time.
const EVERY = 15_000;
const HOLDS = 20;

/**
 * Returns a feed of what `read()` returns, for `useFeed`. It reads as long as somebody listens and the tab is seen; all that listen share one reading.
 * What was read stays after a failed reading.
 */
export function createFeed(read) {
  const nothing = { data: null, error: null, at: 0 };
  const listeners = new Set();
  let [now, turn, timer, refused] = [nothing, 0, 0, undefined];

  async function refresh() {
    clearTimeout(timer);
    const [mine, begin, key] = [(turn += 1), performance.now(), currentKey()];
    let next = now;
    if (!document.hidden && key !== refused) { // what is refused is refused again, until another key is there
      try {
        next = { data: await read(), error: null, at: Date.now() };
      } catch (error) {
        if (error.status === undefined) throw error; // a fault of the page
        if (error.status === 401 || error.status === 404) refused = key;
        next = { ...now, error };
      }
    }
    if (mine !== turn || !listeners.size) return;
    now = next;
    timer = setTimeout(refresh, Math.max(EVERY, HOLDS * (performance.now() - begin)));
    for (const listener of listeners) listener(now);
  }

  function onVisible() {
    if (!document.hidden && Date.now() - now.at >= EVERY) refresh();
  }

  function listen(listener) {
    if (!listeners.size) document.addEventListener("visibilitychange", onVisible);
    listeners.add(listener);
    if (listeners.size === 1) refresh();
    else listener(now);
    return () => {
      listeners.delete(listener);
      if (listeners.size) return;
      document.removeEventListener("visibilitychange", onVisible);
      clearTimeout(timer);
      [now, turn, refused] = [nothing, turn + 1, undefined]; // whoever listens next may be another caller
    };
  }
  return { listen, refresh };
}

/** Returns what a feed has read last: {data, error}, `data` null before the first reading. */
export function useFeed(feed) {
  const [now, setNow] = useState({ data: null, error: null, at: 0 });
  useEffect(() => feed.listen(setNow), [feed]);
  return now;
}
