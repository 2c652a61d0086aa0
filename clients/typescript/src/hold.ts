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
  /** Whether the service may take this connection to be replaced. */
  #isReplaced = false;
  #isRead = false;
  /** End attempts to replace it that have timed out. To end one at once could release the lock. */
  #leftovers: (() => void)[] = [];

  constructor(private connection: Connection<LockDocument>, private anchor: Anchor) {}

  /** Takes the lock up by another connection, and ends the present one. */
  async renew(lock: HeldLock, { ttlMs, timeoutMs, signal, isBackground }: Attempt): Promise<void> {
    const { transport, resource, token } = lock.access;
    const sent = performance.now();
    const body: Renewal = { ttl_seconds: ttlMs / 1000 };
    this.#isReplaced = true;
    const connection = await Connection.open<LockDocument>(transport, "PUT", holding(resource.path), {
      attempted: `hold ${resource.label}`, headers: { "X-Lock-Token": token }, body, timeoutMs, signal, isBackground, keep: end => this.#leftovers.push(end),
    }, "renewed");
    const former = this.connection;
    this.connection = connection;
    this.anchor = { sent, stamp: Date.parse(connection.first.renewed_at) };
    this.#isReplaced = false;
    former.end();
    this.#endLeftovers();
    if (signal.aborted) return connection.end();
    lock.extend(sent + ttlMs, ttlMs, connection.first);
    void this.#read(lock, connection);
  }

  start(lock: HeldLock): void {
    if (!this.#isRead) void this.#read(lock, this.connection);
  }

  intervalMs(): number { return replaceAfterMs; }

  get mayEndLock(): boolean { return this.#isReplaced; }

  end(): void {
    this.connection.end();
    this.#endLeftovers();
  }

  #endLeftovers(): void { for (const end of this.#leftovers.splice(0)) end(); }

  async #read(lock: HeldLock, connection: Connection<LockDocument>): Promise<void> {
    this.#isRead = true;
    // A connection that the client ends would release the lock. So even one that is silent stays until another one has the lock.
    const listen = () => setTimeout(() => lock.wake(), lock.ttlMs / 2).unref();
    let timer = listen();
    connection.response.on("data", () => { clearTimeout(timer); timer = listen(); });
    try {
      for await (const { name, data } of connection.events) {
        if (this.connection !== connection) return;
        if (name === "renewed") {
          const document = data as LockDocument;
          // Events may arrive late, so their arrival is no measure. The service's clock counts from the anchor.
          lock.extend(this.anchor.sent + Date.parse(document.expires_at) - this.anchor.stamp, lock.ttlMs, document);
        } else if (name === "lost" && !this.#isReplaced) {
          // While another connection takes the lock up, this one gets the event because of that, and the other one knows more.
          const problem = data as ProblemDocument;
          lock.lose(new LockLostError(`Lost ${lock.access.resource.label}: ${problem.detail}`, problem));
          return;
        } else if (name === "reconnect") {
          lock.wake();
        }
      }
    } catch {
      // A connection that breaks is one that has ended.
    } finally {
      clearTimeout(timer);
    }
    if (this.connection === connection) lock.wake();
  }
}

/** A response that is a stream of events, whose first one has been read. */
class Connection<T> {
  private constructor(readonly response: IncomingMessage, readonly events: AsyncGenerator<ServerEvent>, readonly first: T) {}

  static async open<T>(transport: Transport, method: string, path: string, options: RequestOptions, expected: string): Promise<Connection<T>> {
    const response = await transport.open(method, path, options);
    const end = () => { response.destroy(); };
    options.signal?.addEventListener("abort", end, { once: true });
    const events = serverEvents(response);
    let timer: NodeJS.Timeout | undefined;
    // Until the caller has the lock, the timer keeps the process alive.
    const timeout = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new LockUnavailableError(`Cannot ${options.attempted}: no event within ${options.timeoutMs} ms`, true)), options.timeoutMs);
    });
    try {
      const { value } = await Promise.race([events.next(), timeout]);
      options.signal?.throwIfAborted();
      if (value === undefined || value.name !== expected) throw new LockUnavailableError(`Cannot ${options.attempted}: the stream does not begin with ${expected}`, true);
      return new Connection<T>(response, events, value.data as T);
    } catch (error) {
      if (options.keep === undefined) end();
      else options.keep(end);
      options.signal?.throwIfAborted();
      throw error instanceof LockUnavailableError ? error : new LockUnavailableError(`Cannot ${options.attempted}: the stream was cut off`, true, error);
    } finally {
      clearTimeout(timer);
      options.signal?.removeEventListener("abort", end);
    }
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
