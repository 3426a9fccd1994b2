// Addresses of the views: `#view/id?name=value`. What a view shows is in its address, so that it can be kept and gone back to.

/** Returns the address of a view; `query` leaves out what is undefined, null or "". */
export function addressOf(view, id = "", query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return `#${view}${id && `/${encodeURIComponent(id)}`}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Returns {view, id, query} of an address, `query` as an object. */
export function readAddress(hash) {
  const [path, search = ""] = hash.slice(1).split("?");
  const [view, id = ""] = path.split("/");
  return { view, id: decode(id), query: Object.fromEntries(new URLSearchParams(search)) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}
