// The REST door, as this page uses it. The token lives in this module's memory and nowhere else.

export interface HolderRef { api_version: string; kind: string; name: string; uid: string }
export interface Guard { group?: string; resource: string; name?: string; selector?: string }
export interface Lock {
  namespace: string; key: string; function?: string; fencing_token?: number; holder: string; reason?: string;
  holder_ref?: HolderRef; guards?: Guard[]; ttl_seconds?: number; acquired_at: string; renewed_at: string; expires_at: string;
}
export interface Waiter {
  key: string; function?: string; place: number; holder: string; reason?: string; holder_ref?: HolderRef; door?: string;
  since: string; until?: string;
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

/** What the service answers instead of what was asked for. */
export class Refusal extends Error {
  constructor(readonly problem: Problem) { super(problem.detail); }
  get status(): number { return this.problem.status; }
}

async function ask(path: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (token) headers.set("Authorization", "Bearer " + token);
  const response = await fetch(path, { ...init, headers, cache: "no-store", credentials: "same-origin", redirect: "error", referrerPolicy: "no-referrer" });
  if (response.ok) return response;
  let problem: Problem = { type: "", title: response.statusText, status: response.status, detail: `The service answered ${response.status}` };
  if (response.headers.get("Content-Type")?.includes("problem+json")) problem = await response.json();
  throw new Refusal(problem);
}

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
  return (await ask(path, { signal: AbortSignal.timeout(15_000) })).json();
}

export async function readWaiters(of: Lock, signal: AbortSignal): Promise<Waiter[]> {
  const answer = await ask(lockPath(of) + "/waiters" + query({ function: of.function, limit: "500" }), { signal });
  return (await answer.json() as { waiters: Waiter[] }).waiters;
}

/** Ends the very grant that is shown. The service refuses it if another one holds the lock by then. */
export async function forceRelease(of: Lock, reason: string): Promise<void> {
  const condition = of.fencing_token?.toString();
  await ask(lockPath(of) + query({ function: of.function, force: "true", reason, fencing_token: condition }), { method: "DELETE", signal: AbortSignal.timeout(30_000) });
}

/** How long a stream may say nothing: it shows that it is alive every 15 seconds. */
const silence = 25_000;

/** Reads server-sent events until the stream ends. EventSource would not send the token. */
export async function follow(path: string, signal: AbortSignal, opened: () => void, told: (event: string, data: unknown) => void): Promise<void> {
  const watchdog = new AbortController();
  let timer = 0;
  const alive = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => watchdog.abort(), silence);
  };
  alive();
  try {
    const response = await ask(path, { headers: { Accept: "text/event-stream" }, signal: AbortSignal.any([signal, watchdog.signal]) });
    opened();
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    // A snapshot comes in many pieces: they are joined once.
    let pieces: string[] = [];
    for (;;) {
      const { value, done } = await reader.read();
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
