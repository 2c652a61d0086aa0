// Requests over node:http and node:https. The client does not use fetch: fetch gives up a response after five minutes without a
// byte, takes no certificate authority, and its sockets keep the process alive for as long as a response is open.
import { readFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { errorOf, LockError, LockUnavailableError } from "./errors.js";
import type { ProblemDocument } from "./api.js";

/** A bearer token: a file that is read for each request, since projected tokens are replaced, or a function that is called for each. */
export type TokenSource = { file: string } | (() => string | Promise<string>);

export interface RequestOptions {
  /** A phrase for errors, such as "acquire lock x". */
  attempted: string; headers?: Record<string, string>; body?: unknown;
  /** Ends the request, which then fails with the reason. */
  signal?: AbortSignal | undefined;
  /** Bounds the time until the whole answer has come; of a stream, until it begins. */
  timeoutMs: number;
  /** Lets the process end although the request is under way. */
  isBackground?: boolean;
  /** Gets what ends a request that has timed out, which goes on until then. Without it, the time-out ends the request. */
  keep?: (end: () => void) => void;
}

export class Transport {
  readonly #base: URL; readonly #isSecure: boolean;
  #agent: http.Agent | undefined; #authority: string | undefined;

  constructor(url: string, readonly token: TokenSource | undefined, readonly ca: string | { file: string } | undefined) {
    this.#base = new URL(url);
    this.#isSecure = this.#base.protocol === "https:";
    if (!this.#isSecure && this.#base.protocol !== "http:") throw new TypeError(`The url has to begin with http: or https:, not with ${this.#base.protocol}`);
  }

  /** Returns the agent, a new one if the certificate authority has changed. Its idle sockets do not keep the process alive. */
  async #agentNow(): Promise<http.Agent> {
    const ca = typeof this.ca === "object" ? await readFile(this.ca.file, "utf8") : this.ca;
    if (this.#agent !== undefined && ca === this.#authority) return this.#agent;
    this.#authority = ca;
    return this.#agent = this.#isSecure ? new https.Agent({ keepAlive: true, ...(ca === undefined ? {} : { ca }) }) : new http.Agent({ keepAlive: true });
  }

  /** Sends a request and returns the body of the answer. Refusals are errors. */
  request(method: string, path: string, options: RequestOptions): Promise<unknown> {
    return this.#send(method, path, options, async response => {
      const text = await textOf(response);
      return text === "" ? undefined : JSON.parse(text) as unknown;
    });
  }

  /** Sends a request and returns the answer to read, if it is no refusal. Reading it does not keep the process alive. */
  open(method: string, path: string, options: RequestOptions): Promise<http.IncomingMessage> {
    return this.#send(method, path, options, async response => { response.socket.unref(); return response; });
  }

  async #send<T>(method: string, path: string, options: RequestOptions, read: (response: http.IncomingMessage) => Promise<T>): Promise<T> {
    options.signal?.throwIfAborted();
    const unavailable = (detail: string, wasSent: boolean, cause?: unknown) =>
      new LockUnavailableError(`Cannot ${options.attempted}: ${detail}`, wasSent, cause);
    const headers: Record<string, string> = { ...options.headers };
    let agent: http.Agent;
    try {
      agent = await this.#agentNow();
      if (this.token !== undefined) headers["Authorization"] = `Bearer ${(typeof this.token === "function" ? await this.token() : await readFile(this.token.file, "utf8")).trim()}`;
    } catch (error) {
      throw unavailable("the bearer token or the certificate authority cannot be read", false, error);
    }
    options.signal?.throwIfAborted();
    const body = options.body === undefined ? undefined : JSON.stringify(options.body);
    if (body !== undefined) Object.assign(headers, { "Content-Type": "application/json", "Content-Length": String(Buffer.byteLength(body)) });
    const target = {
      protocol: this.#base.protocol, hostname: this.#base.hostname.replace(/^\[|\]$/g, ""), port: this.#base.port,
      path: this.#base.pathname.replace(/\/$/, "") + path, method, headers, agent,
    };
    return new Promise<T>((resolve, reject) => {
      let wasSent = false;
      const request = (this.#isSecure ? https : http).request(target);
      const end = () => { request.destroy(); };
      const fail = (error: unknown, ending = end) => { settle(); reject(error); ending(); };
      const onAbort = () => fail(options.signal?.reason);
      const onTimeout = () => fail(unavailable(`no answer within ${Math.round(options.timeoutMs)} ms`, wasSent), () => options.keep === undefined ? end() : options.keep(end));
      const timer = setTimeout(onTimeout, options.timeoutMs);
      if (options.isBackground) timer.unref();
      const settle = () => { clearTimeout(timer); options.signal?.removeEventListener("abort", onAbort); };
      options.signal?.addEventListener("abort", onAbort, { once: true });
      request.on("socket", socket => {
        if (options.isBackground) socket.unref();
        if (!socket.connecting) wasSent = true;
        else socket.once("connect", () => { wasSent = true; });
      });
      request.on("error", error => fail(unavailable(`the connection failed (${(error as NodeJS.ErrnoException).code ?? error.message})`, wasSent, error)));
      request.on("response", response => {
        const status = response.statusCode ?? 0;
        const result = status >= 200 && status < 300 ? read(response) : textOf(response).then(text => { throw refusal(options.attempted, response, text); });
        result.then(value => { settle(); resolve(value); },
          (error: unknown) => fail(error instanceof LockError ? error : unavailable("the answer was cut off or is not understood", true, error)));
      });
      request.end(body);
    });
  }
}

async function textOf(response: http.IncomingMessage): Promise<string> {
  response.setEncoding("utf8");
  let text = "";
  for await (const part of response) text += part as string;
  return text;
}

/** Returns the error of an answer that is not a success. */
function refusal(attempted: string, response: http.IncomingMessage, text: string): Error {
  const seconds = Number(response.headers["retry-after"]);
  if (response.headers["content-type"]?.startsWith("application/problem+json")) {
    return errorOf(attempted, JSON.parse(text) as ProblemDocument, Number.isFinite(seconds) ? seconds * 1000 : undefined);
  }
  const message = `Cannot ${attempted}: status ${response.statusCode} without a problem document`;
  return (response.statusCode ?? 0) >= 500 ? new LockUnavailableError(message, true) : new LockError(message, "refused");
}
