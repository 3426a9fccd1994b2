// Requests to the service. The key goes in a header, never in an address.

import { currentKey } from "./preferences.js";

/**
 * An answer that is no result. `status` is 0 if none came; `detail` is the service's sentence about it, `code` its kind, "" if the page wrote the sentence, and
 * `requestId` what the service's log calls the request.
 */
export class ApiError extends Error {
  constructor(status, detail, { code = "", requestId = "" } = {}) {
    super(detail);
    this.status = status;
    this.detail = detail;
    this.code = code;
    this.requestId = requestId;
  }
}

/** Returns an error if it is a request's; throws any other, which is a fault of the page. */
export function failureOf(error) {
  if (!(error instanceof ApiError)) throw error;
  return error;
}

const refused = new Set();

/** Calls a function whenever the service refuses the key of this tab. */
export function onRefusedKey(listener) {
  refused.add(listener);
}

/** Sends a request and returns the JSON of its answer, or its text with `as` "text". `tried` is a key in place of that of this tab. Throws ApiError. */
export async function send(method, path, { query = {}, body, tried, as = "json" } = {}) {
  const key = tried === undefined ? currentKey() : tried;
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
    lookForService();
    throw new ApiError(0, "");
  }
  const answer = await (response.ok ? response[as]() : response.json()).catch(() => null);
  if (response.ok && answer !== null) return answer;
  if (response.status === 401 && tried === undefined && key && key === currentKey()) for (const listener of refused) listener();
  if (AWAY.includes(response.status)) lookForService();
  throw new ApiError(response.status, answer?.detail ?? "", { code: answer?.code, requestId: response.headers.get("X-Request-ID") ?? "" });
}

/** The event of the window when the service answers again. */
export const SERVICE_BACK = "graphmem-back";

// Statuses with which the service, or a proxy in front of it, says that it does not answer now.
const AWAY = [502, 503, 504];
// Milliseconds until the service is asked whether it answers again: at first, and at most.
const [SOON, LATE] = [2000, 30_000];
let [isLooking, pause, timer, backAt] = [false, SOON, 0, -LATE];

/** Asks again and again whether the service is ready, until it is, and tells the window. */
function lookForService() {
  if (isLooking) return;
  isLooking = true;
  if (performance.now() - backAt > LATE) pause = SOON; // what fails although the service is ready is not tried again all the time
  timer = setTimeout(look, pause);
}

async function look() {
  clearTimeout(timer);
  pause = Math.min(2 * pause, LATE);
  const answer = document.hidden ? null : await fetch("/readyz", { cache: "no-store", credentials: "omit" }).catch(() => null);
  if (!isLooking) return;
  if (!answer?.ok) {
    clearTimeout(timer);
    timer = setTimeout(look, pause);
    return;
  }
  isLooking = false;
  backAt = performance.now();
  dispatchEvent(new Event(SERVICE_BACK));
}

addEventListener("online", () => isLooking && look());
document.addEventListener("visibilitychange", () => isLooking && !document.hidden && look());

/** Returns the path of one memory, to which `suffix` is added. */
export function memoryPath(id, suffix = "") {
  return `/memories/${encodeURIComponent(id)}${suffix}`;
}

/** Returns the path of one entity of the graph. */
export function entityPath(key) {
  return `/graph/entities/${encodeURIComponent(key)}`;
}
