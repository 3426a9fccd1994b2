// Addresses of the views: `#view/id?name=value`. What a view shows is in its address, so that it can be kept and gone back to.

let whose = "";

/** Sets the user whom each address names from now on, "" for none: what a key for several users shows. */
export function nameUser(user) {
  whose = user;
}

/** Returns the address of a view; `query` leaves out what is undefined, null or "", and may name another user than the one who is shown. */
export function addressOf(view, id = "", query = {}) {
  const given = Object.entries({ ...query, user: query.user ?? whose }).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `#${view}${id && `/${encodeURIComponent(id)}`}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Returns {view, id, query} of an address, `query` as an object. Marks in a text that somebody typed into it stay: "?" and "/" divide once. */
export function readAddress(hash) {
  const [path, search] = cut(hash.slice(1), "?");
  const [view, id] = cut(path, "/");
  return { view, id: decode(id) ?? "", query: Object.fromEntries(new URLSearchParams(search)) };
}

/** Returns a part of an address as text, null if it is not encoded as one. */
export function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}

/** Returns what stands before a mark in a text and what stands after it; all and "" without the mark. */
function cut(text, mark) {
  const at = text.indexOf(mark);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + mark.length)];
}
