// Requests to the service. The key goes in a header, never in an address.

import { currentKey } from "./preferences.js";

/** An answer that is no result. `status` is 0 if none came; `detail` is the service's sentence about it. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
    this.detail = detail;
  }
}

const refused = new Set();

/** Calls a function whenever the service refuses the key. */
export function onRefusedKey(listener) {
  refused.add(listener);
}

/** Sends a request and returns the JSON of its answer, or its text with `as` "text". Throws ApiError. */
export async function send(method, path, { query = {}, body, key = currentKey(), as = "json" } = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  const headers = { Accept: "application/json" };
  if (key) headers["X-API-Key"] = key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "omit",
    });
  } catch {
    throw new ApiError(0, "");
  }
  const answer = await (response.ok ? response[as]() : response.json()).catch(() => null);
  if (response.ok && answer !== null) return answer;
  if (response.status === 401 && key && key === currentKey()) for (const listener of refused) listener();
  throw new ApiError(response.status, answer?.detail ?? "");
}

/** Returns the path of one memory, to which `suffix` is added. */
export function memoryPath(id, suffix = "") {
  return `/memories/${encodeURIComponent(id)}${suffix}`;
}

/** Returns the path of one entity of the graph. */
export function entityPath(key) {
  return `/graph/entities/${encodeURIComponent(key)}`;
}
