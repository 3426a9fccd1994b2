// Preferences of this browser (theme, language, keys that are single letters) and the key of this tab.

import { decode } from "./addresses.js";

const KEY = "graphmem.key";
const SHARED = "graphmem.shared";
const listeners = new Set();

function read(name) {
  try {
    return localStorage.getItem(`graphmem.${name}`);
  } catch {
    return null; // storage is switched off: preferences last as long as the page
  }
}

function store(name, value) {
  try {
    localStorage.setItem(`graphmem.${name}`, value);
  } catch {
    // as above
  }
}

const systemLanguage = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
const values = {
  lang: read("lang") ?? systemLanguage,
  theme: read("theme"),
  letters: read("letters") !== "off",
};

function apply() {
  document.documentElement.lang = values.lang === "zh" ? "zh-CN" : "en";
  if (values.theme) document.documentElement.dataset.theme = values.theme;
}

/** Calls a function after each change of a preference; returns a function that ends this. */
export function onPreference(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Returns "en" or "zh". */
export function language() {
  return values.lang;
}

/** Tells whether single letters are commands. */
export function hasLetters() {
  return values.letters;
}

function change(name, value, stored = value) {
  values[name] = value;
  store(name, stored);
  apply();
  for (const listener of listeners) listener();
}

/** Sets whether single letters are commands. */
export function setLetters(on) {
  change("letters", on, on ? "on" : "off");
}

/** Changes between English and Chinese. */
export function switchLanguage() {
  change("lang", values.lang === "en" ? "zh" : "en");
}

/** Changes between light and dark. */
export function switchTheme() {
  const isDark = values.theme ? values.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  change("theme", isDark ? "light" : "dark");
}

function readOfTab(name) {
  try {
    return sessionStorage.getItem(name);
  } catch {
    return null; // storage is switched off: what is kept lasts as long as the page
  }
}

function keepInTab(name, text) {
  try {
    if (text === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, text);
  } catch {
    // as above
  }
}

let key = null;

/** Returns the key in a text: that of an address (`…#key=…`), else the text itself. */
export function keyIn(text) {
  const [, encoded] = text.match(/#key=(.+)$/) ?? [];
  return encoded === undefined ? text : (decode(encoded) ?? encoded);
}

/** Returns the key of this tab; that of the address (`#key=…`) is taken out of it at once. */
export function takeKey() {
  const { hash } = location;
  if (hash.startsWith("#key=") && keyIn(hash) !== hash) {
    history.replaceState(null, "", location.pathname + location.search);
    setKey(keyIn(hash));
  } else {
    key = readOfTab(KEY);
  }
  return key;
}

/** Returns the key of this tab, or null. */
export function currentKey() {
  return key;
}

/** Keeps a key in this tab; null forgets it. It is for this tab alone. */
export function setKey(text) {
  key = text;
  keepInTab(KEY, text);
  setShared(false);
}

/** Tells whether other tabs may have the key of this one. */
export function isShared() {
  return readOfTab(SHARED) !== null;
}

/** Sets whether other tabs may have the key of this one. */
export function setShared(on) {
  keepInTab(SHARED, on ? "yes" : null);
}

apply();
