// What tests need: a client, the control server, and a proxy that loses answers.

import { once } from "node:events";
import net from "node:net";
import { randomBytes } from "node:crypto";
import { LockClient, type LockClientOptions } from "../src/index.js";

export const url = process.env["LOCK_URL"] ?? "";
export const namespace = process.env["LOCK_NAMESPACE"] ?? "";
export const tokenFile = process.env["LOCK_TOKEN_FILE"] ?? "";

/** Why tests that need a façade are skipped, or false. */
export const skip = url === "" ? "LOCK_URL is not set: test/clients starts a façade" : false;

/** A key that no other test has. */
export const newKey = (name: string): string => `${name}:${randomBytes(6).toString("hex")}`;

/** Errors of releases in the background, which no test may leave. */
export const backgroundErrors: unknown[] = [];

export function newClient(options: Partial<LockClientOptions> = {}): LockClient {
  return new LockClient({
    url, namespace, ...(tokenFile === "" ? {} : { token: { file: tokenFile } }), requestTimeoutMs: 60_000,
    onReleaseError: error => backgroundErrors.push(error), ...options,
  });
}

export async function control(action: string): Promise<void> {
  const response = await fetch(`${process.env["LOCK_CONTROL"]}/${action}`, { method: "POST" });
  if (!response.ok) throw new Error(`${action}: ${await response.text()}`);
}

/** The keys of the Lock objects that exist. */
export async function lockObjects(): Promise<string[]> {
  const response = await fetch(`${process.env["LOCK_CONTROL"]}/locks`);
  return await response.json() as string[];
}

/** Waits until the condition holds. */
export async function eventually(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const until = performance.now() + 60_000;
  while (!await condition()) {
    if (performance.now() > until) throw new Error(`${what} does not come`);
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

export const isFree = async (key: string): Promise<boolean> => !(await lockObjects()).includes(key);

/** Waits for the abort of a signal, and returns its reason. */
export async function aborted(signal: AbortSignal): Promise<unknown> {
  const alive = setInterval(() => {}, 1000); // A held lock does not keep the process alive.
  if (!signal.aborted) await once(signal, "abort");
  clearInterval(alive);
  return signal.reason;
}

/** A TCP proxy before the façade. */
export class Proxy implements AsyncDisposable {
  readonly requests: string[] = [];
  /** Called with the head of each request, before it is passed on. */
  onRequest: (head: string) => void = () => {};
  /** Called with each answer. If it returns true, the connection is cut instead. */
  isLost: (request: string, answer: string) => boolean = () => false;
  /** How long answers take longer, in milliseconds. */
  delayMs = 0;
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();

  private constructor() {
    const target = new URL(url);
    this.#server = net.createServer(inner => {
      const outer = net.connect(Number(target.port), target.hostname);
      let last = "";
      for (const socket of [inner, outer]) {
        this.#sockets.add(socket);
        socket.on("error", () => {});
        socket.on("close", () => { this.#sockets.delete(socket); inner.destroy(); outer.destroy(); });
      }
      inner.on("data", data => {
        const head = data.toString("latin1");
        if (/^[A-Z]+ \/v1/.test(head)) {
          last = head;
          this.requests.push(head.slice(0, head.indexOf(" HTTP")));
          this.onRequest(head);
        }
        outer.write(data);
      });
      outer.on("data", data => {
        if (this.isLost(last, data.toString("latin1"))) { inner.destroy(); outer.destroy(); }
        else if (this.delayMs > 0) setTimeout(() => inner.write(data), this.delayMs);
        else inner.write(data);
      });
    });
  }

  static async start(): Promise<Proxy> {
    const proxy = new Proxy();
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    return proxy;
  }

  get url(): string { return `http://127.0.0.1:${(this.#server.address() as net.AddressInfo).port}`; }

  /** Cuts all connections. */
  cut(): void { for (const socket of this.#sockets) socket.destroy(); }

  /** Resolves with the next request whose head has the text. */
  next(text: string): Promise<string> {
    return new Promise(resolve => { this.onRequest = head => { if (head.includes(text)) resolve(head); }; });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, "close");
  }
}
