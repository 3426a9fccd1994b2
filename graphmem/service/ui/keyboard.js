// The keyboard: keys that stand for actions of the open views, alone or after "g".

import { hasLetters } from "./preferences.js";

// Keys of the open views and panels: the last one that was opened comes first.
const keyMaps = [];

/** Has keys, by name, call functions until the returned function is called. */
export function registerKeys(map) {
  keyMaps.unshift(map);
  return () => keyMaps.splice(keyMaps.indexOf(map), 1);
}

let isAfterG = false;

function onKeyDown(event) {
  const { target, key } = event;
  const isTyping = target.closest?.("input:not([type=checkbox]), textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (document.querySelector("dialog[open]") || (isTyping && key !== "Escape")) return;
  if (key.length === 1 && !hasLetters()) return;
  const name = isAfterG ? `g ${key}` : key;
  isAfterG = key === "g";
  const act = keyMaps.find((map) => name in map)?.[name];
  if (!act) return;
  event.preventDefault();
  act();
}

addEventListener("keydown", onKeyDown);
