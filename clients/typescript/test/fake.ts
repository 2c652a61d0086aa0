// A service in memory that holds locks by connections, and does on demand what a façade does seldom.

import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";

interface FakeLock { key: string; token: string; fencing: number; ttlMs: number; acquired: number; renewed: number; connection: http.ServerResponse | undefined }

export class FakeService implements AsyncDisposable {
  readonly locks = new Map<string, FakeLock>();
  /** The method of each request. */
  readonly requests: string[] = [];
  /** Keeps connections silent. */
  isMute = false;
  /** Answers requests of this method with 503. */
  failing: string | undefined;
  /** Carries so many requests of PUT out without an answer. */
  stalled = 0;
  /** Added to the clock of the service, in milliseconds. */
  skewMs = 0;
  #fencing = 0;
  readonly #server = http.createServer((request, response) => { void this.#answer(request, response); });

  static async start(): Promise<FakeService> {
    const service = new FakeService();
    service.#server.listen(0, "127.0.0.1");
    await once(service.#server, "listening");
    return service;
  }

  get url(): string { return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`; }

  lock(key: string): FakeLock {
    const found = this.locks.get(key);
    if (found === undefined) throw new Error(`${key} is not held`);
    return found;
  }

  /** Sends an event to the connection that holds the lock. */
  send(key: string, name: string, data: unknown): void { this.lock(key).connection?.write(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`); }

  /** Ends the connection without an event, and without a release. */
  cut(key: string): void {
    const { connection } = this.lock(key);
    this.lock(key).connection = undefined;
    connection?.destroy();
  }

  /** Tells the client to go on through another connection, and ends this one. */
  reconnect(key: string): void {
    const { connection } = this.lock(key);
    this.send(key, "reconnect", { detail: "the façade stops" });
    this.lock(key).connection = undefined;
    connection?.end();
  }

  renew(key: string): void {
    this.lock(key).renewed = this.#now();
    this.send(key, "renewed", this.#document(this.lock(key)));
  }

  #now(): number { return Date.now() + this.skewMs; }

  #document(lock: FakeLock) {
    const text = (ms: number) => new Date(ms).toISOString();
    return { namespace: "n", key: lock.key, holder: "h", fencing_token: lock.fencing, ttl_seconds: lock.ttlMs / 1000,
      acquired_at: text(lock.acquired), renewed_at: text(lock.renewed), expires_at: text(lock.renewed + lock.ttlMs) };
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? "", this.url);
    const key = decodeURIComponent(pathname.split("/").at(-1) ?? "");
    const isHold = searchParams.get("hold") === "true";
    this.requests.push(`${request.method}${isHold ? " hold" : ""}`);
    let text = "";
    for await (const part of request) text += String(part);
    const ttlMs = text === "" ? 0 : (JSON.parse(text) as { ttl_seconds: number }).ttl_seconds * 1000;
    const refuse = (status: number, type: string) => {
      response.writeHead(status, { "Content-Type": "application/problem+json" });
      response.end(JSON.stringify({ type: `urn:lock-operator:problem:${type}`, title: type, status, detail: type, retryable: status === 503 }));
    };
    if (request.method === this.failing) return refuse(503, "unavailable");
    let lock = this.locks.get(key);
    if (lock !== undefined && this.#now() > lock.renewed + lock.ttlMs) this.locks.delete(key), lock = undefined;
    if (request.method === "POST") {
      const token = `lock_of_${String(request.headers["idempotency-key"])}`;
      if (lock !== undefined && lock.token !== token) return refuse(423, "lock-held");
      lock ??= { key, token, fencing: ++this.#fencing, ttlMs, acquired: this.#now(), renewed: this.#now(), connection: undefined };
      this.locks.set(key, lock);
    } else if (lock === undefined || lock.token !== request.headers["x-lock-token"]) {
      return refuse(410, "lock-ended");
    }
    if (request.method === "DELETE") {
      this.locks.delete(key);
      response.writeHead(204).end();
      lock.connection?.end(`event: lost\ndata: ${JSON.stringify({ detail: "released", status: 410 })}\n\n`);
      return;
    }
    lock.renewed = request.method === "POST" ? lock.acquired : this.#now();
    lock.ttlMs = ttlMs;
    const document = { ...this.#document(lock), ...(request.method === "POST" ? { lock_token: lock.token } : {}) };
    if (!isHold) return void response.writeHead(request.method === "POST" ? 201 : 200).end(JSON.stringify(document));
    const former = lock.connection;
    const holding = lock;
    lock.connection = response;
    response.on("close", () => {
      // The end of the connection ends the lock, unless another one holds it.
      if (holding.connection === response && this.locks.get(key) === holding) this.locks.delete(key);
    });
    if (request.method === "PUT" && this.stalled-- > 0) return;
    response.writeHead(request.method === "POST" ? 201 : 200, { "Content-Type": "text/event-stream" });
    response.write(`event: ${request.method === "POST" ? "acquired" : "renewed"}\ndata: ${JSON.stringify(document)}\n\n`);
    const alive = setInterval(() => { if (!this.isMute) response.write(": alive\n\n"); }, ttlMs / 4);
    response.on("close", () => clearInterval(alive));
    former?.end(`event: lost\ndata: ${JSON.stringify({ detail: "held by another connection", status: 410 })}\n\n`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, "close");
  }
}
