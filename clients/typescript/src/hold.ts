// Keeping a lock by a connection. The service renews the lock for as long as the response of POST or PUT stays open, and
// releases it when the client ends the connection. If the connection breaks, the client goes on with PUT through another one.

import type { IncomingMessage } from "node:http";
import { LockLostError, LockUnavailableError } from "./errors.js";
import { withQuery, type AcquiredLock, type LockDocument, type ProblemDocument, type Renewal, type Resource } from "./api.js";
import type { Attempt, HeldLock, Keeper } from "./held.js";
import type { RequestOptions, Transport } from "./transport.js";

/** A connection is replaced so often, so that the drift of clocks does not matter and the bearer token is fresh. */
const replaceAfterMs = 10 * 60_000;

/** When a request was sent, by performance.now(), and the time of the service in its answer, in milliseconds. */
interface Anchor { sent: number; stamp: number }

const holding = (path: string) => withQuery(path, { hold: "true" });

/** Acquires a lock that the connection of the answer holds. */
export async function openHold(transport: Transport, resource: Resource, options: RequestOptions, sent: number): Promise<{ granted: AcquiredLock; keeper: Keeper }> {
  const connection = await Connection.open<AcquiredLock>(transport, "POST", holding(resource.post), options, "acquired");
  return { granted: connection.first, keeper: new ByConnection(connection, { sent, stamp: Date.parse(connection.first.acquired_at) }) };
}

class ByConnection implements Keeper {
  #connection: Connection<LockDocument>;
  #anchor: Anchor;
  #isReplaced = false;
  #isRead = false;

  constructor(connection: Connection<LockDocument>, anchor: Anchor) {
    this.#connection = connection;
    this.#anchor = anchor;
  }

  /** Takes the lock up by another connection, and ends the present one. */
  async renew(lock: HeldLock, { ttlMs, timeoutMs, signal, isBackground }: Attempt): Promise<void> {
    const { transport, resource, token } = lock.access;
    const sent = performance.now();
    const body: Renewal = { ttl_seconds: ttlMs / 1000 };
    this.#isReplaced = true;
    const connection = await Connection.open<LockDocument>(transport, "PUT", holding(resource.path), {
      attempted: `hold ${resource.label}`, headers: { "X-Lock-Token": token }, body, timeoutMs, signal, isBackground,
    }, "renewed");
    const former = this.#connection;
    this.#connection = connection;
    this.#anchor = { sent, stamp: Date.parse(connection.first.renewed_at) };
    this.#isReplaced = false;
    former.end();
    if (signal.aborted) return connection.end();
    lock.extend(sent + ttlMs, ttlMs, connection.first);
    void this.#read(lock, connection);
  }

  start(lock: HeldLock): void {
    if (!this.#isRead) void this.#read(lock, this.#connection);
  }

  intervalMs(): number { return replaceAfterMs; }

  end(): void { this.#connection.end(); }

  async #read(lock: HeldLock, connection: Connection<LockDocument>): Promise<void> {
    this.#isRead = true;
    try {
      for await (const { name, data } of connection.events(() => lock.ttlMs / 2)) {
        if (this.#connection !== connection) return;
        if (name === "renewed") {
          const document = data as LockDocument;
          // Events may arrive late, so their arrival is no measure. The service's clock counts from the anchor.
          lock.extend(this.#anchor.sent + Date.parse(document.expires_at) - this.#anchor.stamp, lock.ttlMs, document);
        } else if (name === "lost" && !this.#isReplaced) {
          // While another connection takes the lock up, this one gets the event because of that, and the other one knows more.
          const problem = data as ProblemDocument;
          lock.lose(new LockLostError(`Lost ${lock.access.resource.label}: ${problem.detail}`, { problem }));
          return;
        } else if (name === "lost" || name === "reconnect") {
          break;
        }
      }
    } catch {
      // A connection that breaks is one that has ended.
    }
    connection.end();
    if (this.#connection === connection) lock.wake();
  }
}

/** A response that is a stream of events, whose first one has been read. */
class Connection<T> {
  private constructor(readonly response: IncomingMessage, readonly rest: AsyncGenerator<ServerEvent>, readonly first: T) {}

  static async open<T>(transport: Transport, method: string, path: string, options: RequestOptions, expected: string): Promise<Connection<T>> {
    const response = await transport.open(method, path, options);
    const end = () => { response.destroy(); };
    options.signal?.addEventListener("abort", end, { once: true });
    // Until the caller has the lock, the process has something to wait for.
    const timer = setTimeout(end, options.timeoutMs);
    const events = serverEvents(response);
    try {
      const { value } = await events.next();
      options.signal?.throwIfAborted();
      if (value === undefined || value.name !== expected) throw new LockUnavailableError(`Cannot ${options.attempted}: the stream does not begin with ${expected}`, true);
      return new Connection<T>(response, events, value.data as T);
    } catch (error) {
      end();
      options.signal?.throwIfAborted();
      throw error instanceof LockUnavailableError ? error : new LockUnavailableError(`Cannot ${options.attempted}: the stream was cut off`, true, error);
    } finally {
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", end);
    }
  }

  /** The further events. A silence that is too long ends them. */
  async *events(silenceMs: () => number): AsyncGenerator<ServerEvent> {
    const listen = () => setTimeout(() => { this.response.destroy(new Error("silence")); }, silenceMs()).unref();
    let timer = listen();
    this.response.on("data", () => { clearTimeout(timer); timer = listen(); });
    this.response.once("close", () => { clearTimeout(timer); });
    yield* this.rest;
  }

  end(): void { this.response.destroy(); }
}

interface ServerEvent { name: string; data: unknown }

/** Reads server-sent events. Their data is JSON in one line. */
async function* serverEvents(response: IncomingMessage): AsyncGenerator<ServerEvent> {
  let text = "";
  let name = "";
  let data = "";
  response.setEncoding("utf8");
  for await (const part of response) {
    const lines = (text + (part as string)).split(/\r?\n/);
    text = lines.pop() ?? "";
    for (const line of lines) {
      if (line.startsWith("event:")) name = line.slice(6).trim();
      else if (line.startsWith("data:")) data += line.slice(5).trim();
      else if (line === "" && data !== "") {
        yield { name, data: JSON.parse(data) as unknown };
        name = data = "";
      }
    }
  }
}
