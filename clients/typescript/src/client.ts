// Acquiring locks.
import { randomBytes } from "node:crypto";
import { LockError, LockHeldError, LockLostError } from "./errors.js";
import { byRenewals, deleteUntil, HeldLock, mayHaveHappened, type Held, type Keeper } from "./held.js";
import { openHold } from "./hold.js";
import { pause, repeat } from "./repeat.js";
import { Transport, type TokenSource } from "./transport.js";
import { lockResource, setResource, withQuery, type AcquiredLock, type AcquiredSet, type Acquisition, type HolderReference, type LockDocument,
  type Resource } from "./api.js";

export interface LockClientOptions {
  /** Where the service is, as in https://lock-operator-facade.forrst-system.svc. */
  url: string;
  namespace: string;
  /** Without one, requests have no credentials. */
  token?: TokenSource;
  /** The certificate authority of the service, in PEM or as a file that is read for each request, in place of those of Node. */
  ca?: string | { file: string };
  /** For how long the service may fail to answer, beyond the wait for a lock, until a call fails: 10,000 by default. */
  requestTimeoutMs?: number;
  /** Options that calls do not give. */
  defaults?: Omit<AcquireOptions, "signal" | "onContention">;
  /** Gets the error of a release in the background. By default it becomes a warning of the process. */
  onReleaseError?: (error: LockError) => void;
}

export interface AcquireOptions {
  /** How long the lock lasts without a renewal: 30,000 by default. */
  ttlMs?: number;
  /** How long to wait for other holders: 0 by default, which means not at all. */
  waitMs?: number;
  /** Ends the acquisition, with the reason. It does not concern a lock that is held. */
  signal?: AbortSignal | undefined;
  /** Only requests with the same function contend. */
  function?: string;
  /** Why the lock is held, for people. */
  reason?: string;
  /** The place among the waiting callers. One above 0 needs a right. */
  priority?: number;
  /** The Kubernetes object with whose end the lock ends. */
  holderRef?: HolderReference;
  /** Keeps the lock by a connection in place of renewals. The service releases the lock when the connection ends. */
  hold?: boolean;
  /** False leaves renewals to the caller: true by default. */
  isRenewed?: boolean;
  /** Whether contention is a LockHeldError or a result with ok: false. */
  onContention?: "error" | "result";
}

export interface AcquireAllOptions extends Omit<AcquireOptions, "hold"> {
  /** With strict, the service keeps none of the locks while it waits for another. */
  together?: "strict";
}

/** A lock that another caller holds. */
export interface Contended extends AsyncDisposable {
  readonly ok: false; readonly reason: "locked"; readonly key: string | undefined; readonly holder: string | undefined;
  readonly since: Date | undefined; readonly until: Date | undefined;
}

/** A lock as everyone with the right to read it sees it. */
export interface LockInfo {
  key: string; function: string | undefined; holder: string; reason: string | undefined; fencingToken: number | undefined;
  ttlMs: number | undefined; acquiredAt: Date; renewedAt: Date; expiresAt: Date;
}

/** Acquires locks in one namespace. */
export class LockClient {
  readonly namespace: string;
  readonly onReleaseError: (error: LockError) => void;
  readonly #transport: Transport; readonly #requestTimeoutMs: number; readonly #defaults: Partial<AcquireOptions>;
  /** The longest wait of one request: what the service allows, as far as is known. Proxies end connections that are idle for minutes. */
  #maxWaitMs = 60_000;

  constructor(options: LockClientOptions) {
    this.namespace = options.namespace;
    this.#transport = new Transport(options.url, options.token, options.ca);
    this.#requestTimeoutMs = options.requestTimeoutMs ?? 10_000;
    this.#defaults = options.defaults ?? {};
    this.onReleaseError = options.onReleaseError ?? (error => process.emitWarning(error));
  }

  /**
   * Acquires the lock and renews it until it is released: `await using held = await client.acquire(key)`. If another caller
   * holds the lock for all of waitMs, that is a LockHeldError, or a result that says so. The client repeats a request whose
   * answer is lost. If it then fails, or the signal aborts, and may have the lock, it releases the lock in the background.
   */
  acquire(key: string, options: AcquireOptions & { onContention: "result" }): Promise<Held | Contended>;
  acquire(key: string, options?: AcquireOptions & { onContention?: "error" }): Promise<Held>;
  acquire(key: string, options: AcquireOptions = {}): Promise<Held | Contended> {
    return this.#acquire(lockResource(this.namespace, key, options.function ?? this.#defaults.function), options);
  }

  /** Acquires all of the locks or none, and holds them as one. */
  acquireAll(keys: readonly string[], options: AcquireAllOptions & { onContention: "result" }): Promise<Held | Contended>;
  acquireAll(keys: readonly string[], options?: AcquireAllOptions & { onContention?: "error" }): Promise<Held>;
  acquireAll(keys: readonly string[], options: AcquireAllOptions = {}): Promise<Held | Contended> {
    return this.#acquire(setResource(this.namespace, keys, options.function ?? this.#defaults.function), { ...options, hold: false });
  }

  /**
   * Calls the function with the lock, releases the lock and returns the result. If the lock is lost meanwhile, held.signal
   * aborts, and run rejects with the LockLostError when the function has settled; an error of the function is then its
   * `suppressed`. If the release fails, run rejects with that error in the same way. The result is dropped in both cases.
   */
  async run<T>(key: string, options: Omit<AcquireOptions, "onContention">, fn: (held: Held) => T | Promise<T>): Promise<T> {
    const held = await this.acquire(key, options) as HeldLock;
    const [result] = await Promise.allSettled([(async () => await fn(held))()]);
    try {
      await held.release();
      if (held.loss !== undefined) throw held.loss;
    } catch (error) {
      if (result.status === "rejected" && error instanceof LockError && result.reason !== error) error.suppressed = result.reason as unknown;
      throw error;
    }
    if (result.status === "rejected") throw result.reason;
    return result.value;
  }

  /** Reads the lock. Undefined means that it is free. */
  async get(key: string, options: { function?: string; signal?: AbortSignal } = {}): Promise<LockInfo | undefined> {
    const resource = lockResource(this.namespace, key, options.function ?? this.#defaults.function);
    const read = (timeoutMs: number) => this.#transport.request("GET", resource.path, { attempted: `read ${resource.label}`, timeoutMs, signal: options.signal });
    const answer = await this.#repeat(options.signal, read).catch((error: unknown) => { if (!(error instanceof LockLostError)) throw error; });
    return answer === undefined ? undefined : infoOf(answer as LockDocument);
  }

  /**
   * Ends the lock of any holder, which needs a right of its own. With the fencing token of the grant that is to end it does
   * nothing to a later grant, and rejects. A lock that is free rejects, unless an answer was lost before.
   */
  async forceRelease(key: string, reason: string, options: { fencingToken?: number; function?: string; signal?: AbortSignal } = {}): Promise<void> {
    const resource = lockResource(this.namespace, key, options.function ?? this.#defaults.function);
    const path = withQuery(resource.path, { force: "true", reason, fencing_token: options.fencingToken });
    let mayHaveEnded = false;
    await this.#repeat(options.signal, async timeoutMs => {
      try {
        await this.#transport.request("DELETE", path, { attempted: `release ${resource.label} by force`, timeoutMs, signal: options.signal });
      } catch (error) {
        if (error instanceof LockLostError && mayHaveEnded) return;
        // Without the fencing token a repetition could end the next grant.
        if (mayHaveHappened(error) && options.fencingToken === undefined) throw new LockError((error as Error).message, "unavailable", undefined, undefined, error);
        mayHaveEnded ||= mayHaveHappened(error);
        throw error;
      }
    });
  }

  #repeat<T>(signal: AbortSignal | undefined, attempt: (timeoutMs: number) => Promise<T>): Promise<T> {
    const until = performance.now() + this.#requestTimeoutMs;
    return repeat(remainingMs => attempt(Math.min(remainingMs, this.#requestTimeoutMs / 2)), { until: () => until, signal });
  }

  async #acquire(resource: Resource, given: AcquireOptions & { together?: "strict" }): Promise<Held | Contended> {
    const options = { ...this.#defaults, ...given };
    const ttlMs = options.ttlMs ?? 30_000;
    const body: Acquisition & { together?: "strict" | undefined } = {
      ...resource.body, ttl_seconds: ttlMs / 1000, priority: options.priority, reason: options.reason, holder_ref: options.holderRef,
      together: options.together,
    };
    // The owner is chosen before the request, so that a repeated request finds the grant of one whose answer was lost.
    const claim: Claim = { resource, body, idempotencyKey: newKey(), isHold: options.hold === true, ttlMs, mayHold: false };
    try {
      const lock = await this.#wait(claim, options.waitMs ?? 0, options.signal);
      await lock.start(claim.isHold || (options.isRenewed ?? true), options.signal);
      return lock;
    } catch (error) {
      if (claim.mayHold) void this.#abandon(claim);
      if (!(error instanceof LockHeldError) || options.onContention !== "result") throw error;
      const { key = resource.keys[0], holder, since, until } = error;
      return { ok: false, reason: "locked", key, holder, since, until, async [Symbol.asyncDispose]() { /* Nothing is held. */ } };
    }
  }

  /** Acquires the lock, by as many requests as the wait and lost answers take. */
  async #wait(claim: Claim, waitMs: number, signal: AbortSignal | undefined): Promise<HeldLock> {
    const waitUntil = performance.now() + waitMs;
    const until = waitUntil + this.#requestTimeoutMs;
    for (;;) {
      const began = performance.now();
      const askedMs = Math.min(Math.max(waitUntil - began, 0), this.#maxWaitMs);
      try {
        return await repeat(remainingMs => {
          const wait = Math.min(Math.max(waitUntil - performance.now(), 0), this.#maxWaitMs);
          return this.#post(claim, wait, Math.min(remainingMs, wait + this.#requestTimeoutMs / 2), signal);
        }, { until: () => until, signal });
      } catch (error) {
        const maximum = error instanceof LockError ? error.fields.find(each => each.field === "wait_seconds")?.maximum : undefined;
        if (maximum !== undefined && maximum * 1000 < this.#maxWaitMs) {
          this.#maxWaitMs = maximum * 1000;
        } else if (error instanceof LockLostError && performance.now() < until) {
          // The answer to an earlier request was lost, and its grant has ended, as with the connection that was to hold it.
          claim.idempotencyKey = newKey();
        } else if (error instanceof LockHeldError && performance.now() < waitUntil) {
          // A refusal before the end of the wait is that of a service that cannot let the caller wait now.
          if (performance.now() - began < askedMs / 2) await pause(Math.min(1000, waitUntil - performance.now()), { signal });
        } else {
          throw error;
        }
      }
    }
  }

  /** Asks once. */
  async #post(claim: Claim, waitMs: number, timeoutMs: number, signal: AbortSignal | undefined): Promise<HeldLock> {
    const { resource, ttlMs } = claim;
    const sent = performance.now();
    const options = {
      attempted: `acquire ${resource.label}`, headers: { "Idempotency-Key": claim.idempotencyKey },
      body: waitMs > 0 ? { ...claim.body, wait_seconds: waitMs / 1000 } : claim.body, timeoutMs, signal,
    };
    const couldHold = claim.mayHold;
    claim.mayHold = true;
    try {
      let keeper: Keeper = byRenewals;
      let granted: AcquiredLock | AcquiredSet;
      if (claim.isHold) ({ granted, keeper } = await openHold(this.#transport, resource, options, sent));
      else granted = await this.#transport.request("POST", resource.post, options) as AcquiredLock | AcquiredSet;
      const access = { transport: this.#transport, resource, token: granted.lock_token, requestTimeoutMs: this.#requestTimeoutMs };
      return new HeldLock(access, granted.fencing_token, ttlMs, sent, granted.expires_at, keeper);
    } catch (error) {
      // The service looks for a grant of this request before it refuses one. Other refusals tell nothing of earlier requests.
      if (!signal?.aborted) claim.mayHold = mayHaveHappened(error) || couldHold && !(error instanceof LockHeldError || error instanceof LockLostError);
      throw error;
    }
  }

  /** Releases what an acquisition that has failed may hold. */
  async #abandon(claim: Claim): Promise<void> {
    const until = performance.now() + Math.min(this.#requestTimeoutMs, claim.ttlMs);
    try {
      const lock = await repeat(remainingMs => this.#post(claim, 0, remainingMs, undefined), { until: () => until });
      lock.keeper.end?.();
      await deleteUntil(lock.access, until);
    } catch (error) {
      if (error instanceof LockHeldError || error instanceof LockLostError) return; // It is not ours, or ours no more.
      this.onReleaseError(error instanceof LockError ? error : new LockError(`Cannot release ${claim.resource.label}`, "unavailable", undefined, undefined, error));
    }
  }
}

const newKey = () => randomBytes(24).toString("base64url");

/** What identifies an acquisition to the service, and whether the service may have granted it. */
interface Claim { resource: Resource; body: Acquisition; idempotencyKey: string; isHold: boolean; ttlMs: number; mayHold: boolean }

function infoOf(document: LockDocument): LockInfo {
  return {
    key: document.key, function: document.function, holder: document.holder, reason: document.reason, fencingToken: document.fencing_token,
    ttlMs: document.ttl_seconds === undefined ? undefined : document.ttl_seconds * 1000,
    acquiredAt: new Date(document.acquired_at), renewedAt: new Date(document.renewed_at), expiresAt: new Date(document.expires_at),
  };
}
