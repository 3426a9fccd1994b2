// The key in further tabs of this browser, if whoever signed in wants that. Tabs tell each other over a channel that only pages of this origin hear; nothing is
// stored outside of them, so that the key is gone with the last one.

import { currentKey, isShared, setShared } from "./preferences.js";

const channel = new BroadcastChannel("graphmem.key");

/** Asks the other tabs for their key. `onKey` is called with a key that a tab without one is given, now or later; `onForget` when another tab signs out. */
export function joinTabs({ onKey, onForget }) {
  channel.onmessage = ({ data: { asks, key, forgets } }) => {
    const own = currentKey();
    if (asks && own !== null && isShared()) channel.postMessage({ key: own });
    if (key && own === null) onKey(key);
    if (key && key === own) setShared(true);
    if (forgets && forgets === own) onForget();
  };
  if (currentKey() === null) channel.postMessage({ asks: true });
}

/** Gives the key of this tab to those that have none, now and later. */
export function shareKey() {
  setShared(true);
  channel.postMessage({ key: currentKey() });
}

/** Lets all tabs forget the key of this one, if they share it. */
export function forgetKey() {
  if (isShared()) channel.postMessage({ forgets: currentKey() });
}
