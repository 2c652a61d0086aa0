// The REST door, as this page uses it. The token lives in this module's memory and nowhere else.

export interface HolderRef { api_version: string; kind: string; name: string; uid: string }
export interface Guard { group?: string; resource: string; name?: string; selector?: string }
export interface Lock {
  namespace: string; key: string; function?: string; fencing_token?: number; holder: string; reason?: string;
  holder_ref?: HolderRef; guards?: Guard[]; ttl_seconds?: number; acquired_at: string; renewed_at: string; expires_at: string;
}
export interface Waiter {
  key: string; function?: string; place: number; holder: string; reason?: string; holder_ref?: HolderRef; door?: string;
  priority?: number; since: string; until?: string;
}
export interface Rights { user: string; is_authenticated: boolean; own_namespace?: string; verbs: string[] }
/** A grant that has ended: by what, when, and the lock as it was last. */
export interface PastGrant { event: string; ended_at: string; lock: Lock }
export interface Past { since: string; grants: PastGrant[] }
export interface Line { namespace: string; key: string; function?: string; waiting: number }
export interface Problem { type: string; title: string; status: number; detail: string; right?: { verb: string; resource: string; namespace: string } }

let token = "";

/** Gives the token to all later requests. An empty one leaves it to a proxy. */
export function useToken(given: string): void { token = given; }
export function hasToken(): boolean { return token !== ""; }

/** Whether a text can be a token. Others than these characters come from copying, and cannot be sent. */
export function isToken(text: string): boolean { return /^[\x21-\x7e]+$/.test(text); }

/** What is answered instead of what was asked for. */
export class Refusal extends Error {
  /** So many milliseconds should pass before the next request. */
  constructor(readonly problem: Problem, readonly retryAfter = 0) { super(problem.detail); }
  get status(): number { return this.problem.status; }
}

/** There was no answer, or not all of it. */
export class Lost extends Error {}

function lost(): never { throw new Lost("The service did not answer."); }

/** The type of the problem that something else has answered, such as a proxy that wants its user to sign in. */
export const foreign = "foreign";

function foreignAnswer(): Refusal {
  return new Refusal({
    type: foreign, title: "", status: 0,
    detail: "Not the lock service has answered, but something in front of it, as a proxy does that wants you to sign in again.",
  });
}

/** Whether the same request may be answered later. */
export function mayPass(error: unknown): boolean {
  return error instanceof Lost || error instanceof Refusal && (error.status >= 500 || error.status === 429);
}

const longestPause = 60_000;

/** The milliseconds to wait after so many failures in a row: longer each time, and as long as the service asks for; at random, so that not all viewers ask at once. */
export function pauseAfter(failures: number, error?: unknown): number {
  const random = Math.random() / 2;
  const wanted = error instanceof Refusal ? Math.min(longestPause, error.retryAfter) : 0;
  return Math.max(wanted * (1 + random), Math.min(5000, 500 * 2 ** failures) * (0.75 + random));
}

function isOf(response: Response, type: string): boolean { return response.headers.get("Content-Type")?.includes(type) ?? false; }

/** Whether something in front of the service has refused the viewer. The service itself tells why. What wants a bearer token may be given one, all the same. */
function isOfProxy(response: Response): boolean {
  const wantsToken = /(^|,\s*)bearer\b/i.test(response.headers.get("WWW-Authenticate") ?? "");
  return (response.status === 401 && !wantsToken || response.status === 403) && !isOf(response, "problem+json");
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", "Bearer " + token);
  const response = await fetch(path, {
    ...init, headers, cache: "no-store", credentials: "same-origin", redirect: "manual", referrerPolicy: "no-referrer",
  }).catch(lost);
  if (response.type === "opaqueredirect") throw foreignAnswer();
  if (response.ok) return response;
  if (isOfProxy(response)) throw foreignAnswer();
  let problem: Problem = { type: "", title: response.statusText, status: response.status, detail: `The service answered ${response.status}` };
  if (isOf(response, "problem+json")) problem = await response.json().catch(lost);
  throw new Refusal(problem, 1000 * Number(response.headers.get("Retry-After")) || 0);
}

async function read<T>(path: string, signal: AbortSignal): Promise<T> {
  const response = await ask(path, { signal });
  if (!isOf(response, "application/json")) throw foreignAnswer();
  return response.json().catch(lost);
}

/** Whether a browser can ask for the lock: it takes a key of only dots for steps in the path, however it is written. */
export function isAddressable(of: { key: string }): boolean { return of.key !== "." && of.key !== ".."; }

/** The path of a lock that is addressable. */
export function lockPath(of: { namespace: string; key: string }): string {
  return `/v1/namespaces/${encodeURIComponent(of.namespace)}/locks/${encodeURIComponent(of.key)}`;
}

function query(params: Record<string, string | undefined>): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value) given.set(name, value);
  const text = given.toString();
  return text && "?" + text;
}

export async function readRights(namespace?: string, of?: { key: string; function?: string }): Promise<Rights> {
  const path = "/v1/rights" + query({ namespace, key: of?.key, function: of?.function });
  return read(path, AbortSignal.timeout(15_000));
}

/** Those that wait, and whether there are more than the service tells. */
export interface Waiters { waiters: Waiter[]; more?: boolean }

export async function readWaiters(of: Lock, signal: AbortSignal): Promise<Waiters> {
  return read(lockPath(of) + "/waiters" + query({ function: of.function, limit: "500" }), signal);
}

/** Ends the very grant that is shown. The service refuses it if another one holds the lock by then. */
export async function forceRelease(of: Lock, reason: string): Promise<void> {
  if (of.fencing_token === undefined) throw new Error("a lock without the number of its grant");
  const path = lockPath(of) + query({ function: of.function, force: "true", reason, fencing_token: of.fencing_token.toString() });
  const response = await ask(path, { method: "DELETE", signal: AbortSignal.timeout(30_000) });
  if (response.status !== 204) throw foreignAnswer();
}

/** How long a stream may say nothing: it shows that it is alive every 15 seconds. */
const silence = 25_000;

/** Reads server-sent events until the stream ends. EventSource would not send the token. */
export async function follow(path: string, signal: AbortSignal, told: (event: string, data: unknown) => void): Promise<void> {
  const watchdog = new AbortController();
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => watchdog.abort(), silence);
  };
  alive();
  try {
    const response = await ask(path, { headers: { Accept: "text/event-stream" }, signal: AbortSignal.any([signal, watchdog.signal]) });
    if (!isOf(response, "text/event-stream")) throw foreignAnswer();
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    // A snapshot comes in many pieces: they are joined once.
    let pieces: string[] = [];
    for (;;) {
      const { value, done } = await reader.read().catch(lost);
      if (done) return;
      alive();
      pieces.push(value);
      if (!value.includes("\n")) continue;
      const events = pieces.join("").split("\n\n");
      pieces = [events.pop()!];
      for (const each of events) {
        let name = "message", data = "";
        for (const line of each.split("\n")) {
          if (line.startsWith("event: ")) name = line.slice(7);
          else if (line.startsWith("data: ")) data = line.slice(6);
        }
        if (data) told(name, JSON.parse(data));
      }
    }
  } finally {
    clearTimeout(timer);
    watchdog.abort();
  }
}
