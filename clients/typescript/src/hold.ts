// Keeping a lock by a connection. The service renews the lock for as long as the response of POST or PUT stays open, and
// releases it when the client ends the connection. If the connection breaks, the client goes on with PUT through another one.
import type { IncomingMessage } from "node:http";
import { LockLostError, LockUnavailableError } from "./errors.js";
import { withQuery, type AcquiredLock, type LockDocument, type ProblemDocument, type Renewal, type Resource } from "./api.js";
import { mayHaveHappened, type Attempt, type HeldLock, type Keeper } from "./held.js";
import type { RequestOptions, Transport } from "./transport.js";

/** When a request was sent, by performance.now(), and the time of the service in its answer, in milliseconds. */
interface Anchor { sent: number; stamp: number }

/** Acquires a lock that the connection of the answer holds. */
export async function openHold(transport: Transport, resource: Resource, options: RequestOptions, sent: number): Promise<{ granted: AcquiredLock; keeper: Keeper }> {
  const connection = await connect<AcquiredLock>(transport, "POST", resource.post, options, "acquired");
  return { granted: connection.first, keeper: new ByConnection(connection, { sent, stamp: Date.parse(connection.first.renewed_at) }) };
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
    const wasReplaced = this.#isReplaced;
    this.#isReplaced = true;
    const connection = await connect<LockDocument>(transport, "PUT", resource.path, {
      attempted: `hold ${resource.label}`, headers: { "X-Lock-Token": token }, body: { ttl_seconds: ttlMs / 1000 } satisfies Renewal, timeoutMs, signal, isBackground, keep: end => this.#leftovers.push(end),
    }, "renewed").catch((error: unknown) => {
      if (!mayHaveHappened(error)) this.#isReplaced = wasReplaced;
      throw error;
    });
    const former = this.connection;
    this.connection = connection;
    this.anchor = { sent, stamp: Date.parse(connection.first.renewed_at) };
    this.#isReplaced = false;
    former.response.destroy();
    this.#endLeftovers();
    if (signal.aborted) return void connection.response.destroy();
    lock.extend(sent + ttlMs, ttlMs, connection.first);
    void this.#read(lock, connection);
  }

  start(lock: HeldLock): void {
    if (!this.#isRead) void this.#read(lock, this.connection);
  }

  /** A connection is replaced so often that the drift of clocks does not matter, and that the bearer token is fresh. */
  intervalMs(): number { return 10 * 60_000; }
  get mayEndLock(): boolean { return this.#isReplaced; }

  end(): void {
    this.connection.response.destroy();
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
interface Connection<T> { response: IncomingMessage; events: AsyncGenerator<ServerEvent>; first: T }

async function connect<T>(transport: Transport, method: string, path: string, options: RequestOptions, expected: string): Promise<Connection<T>> {
  const response = await transport.open(method, withQuery(path, { hold: "true" }), options);
  const end = () => { response.destroy(); };
  const unavailable = (detail: string, cause?: unknown) => new LockUnavailableError(`Cannot ${options.attempted}: ${detail}`, true, cause);
  const events = serverEvents(response);
  let timer: NodeJS.Timeout | undefined;
  // Until the caller has the lock, the timer keeps the process alive.
  const timeout = new Promise<never>((_, reject) => { timer = setTimeout(() => reject(unavailable("no event comes")), options.timeoutMs); });
  options.signal?.addEventListener("abort", end, { once: true });
  try {
    const { value } = await Promise.race([events.next(), timeout]);
    if (value?.name !== expected) throw unavailable(`the stream does not begin with ${expected}`);
    options.signal?.throwIfAborted();
    return { response, events, first: value.data as T };
  } catch (error) {
    (options.keep ?? (ending => ending()))(end);
    options.signal?.throwIfAborted();
    throw error instanceof LockUnavailableError ? error : unavailable("the stream was cut off", error);
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", end);
  }
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
