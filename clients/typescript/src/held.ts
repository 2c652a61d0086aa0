// A lock that is held: its deadline, its renewals and its release.
import { LockError, LockHeldError, LockLostError, LockUnavailableError } from "./errors.js";
import { pause, repeat } from "./repeat.js";
import type { LockDocument, Renewal, Resource } from "./api.js";
import type { Transport } from "./transport.js";

/** A lock, or several locks, that the program holds. */
export interface Held extends AsyncDisposable {
  readonly ok: true;
  /** The key; of several, the first one. */
  readonly key: string; readonly keys: readonly string[];
  /** Larger than that of each earlier grant. Send it along with what the lock protects. */
  readonly fencingToken: number;
  readonly ttlMs: number;
  /** Aborts when the lock is, or may be, lost; the reason is a LockLostError. A release does not abort it. */
  readonly signal: AbortSignal;
  /**
   * When the lock ends unless it is renewed, by performance.now(): a ttl after the last successful request was sent. That
   * clock may stand still while the machine is suspended.
   */
  readonly deadline: number;
  /** The same by the clock of the service, for people. */
  readonly expiresAt: Date;
  /** Renews the lock now, repeatedly until the deadline if need be. A ttl that is given counts from now on. */
  renew(ttlMs?: number): Promise<void>;
  /**
   * Releases the lock. Rejects if that failed, and with a LockLostError if the lock had ended before, unless the signal has
   * told so. Does nothing if the lock is released already; after a failure, it tries again.
   */
  release(): Promise<void>;
}

/** What a lock that is held needs to send requests. */
export interface Access { transport: Transport; resource: Resource; token: string; requestTimeoutMs: number }
export interface Attempt { ttlMs: number; timeoutMs: number; signal: AbortSignal; isBackground: boolean }

/** How a lock is kept: by renewals, or by a connection. */
export interface Keeper {
  /** Begins when the caller gets the lock. */
  start?(lock: HeldLock): void;
  /** Renews the lock once, and tells the lock by extend. */
  renew(lock: HeldLock, attempt: Attempt): Promise<void>;
  /** How long after a renewal the next one is due. */
  intervalMs(ttlMs: number): number;
  /** Ends what keeps the lock, after its release. */
  end?(): void;
  /** Whether the end of a request that was under way may have released the lock. */
  readonly mayEndLock?: boolean;
}

/** Renews a lock at a third of its ttl. */
export const byRenewals: Keeper = {
  async renew(lock, { ttlMs, timeoutMs, signal, isBackground }) {
    const sent = performance.now();
    const { transport, resource, token } = lock.access;
    const answer = await transport.request("PUT", resource.path, {
      attempted: `renew ${resource.label}`, headers: { "X-Lock-Token": token }, body: { ttl_seconds: ttlMs / 1000 } satisfies Renewal, timeoutMs, signal, isBackground,
    });
    const { expires_at } = (answer ?? {}) as Partial<LockDocument>;
    if (expires_at === undefined) throw new LockUnavailableError(`Cannot renew ${resource.label}: the answer is not understood`, true);
    lock.extend(sent + ttlMs, ttlMs, { expires_at });
  },
  intervalMs: ttlMs => ttlMs / 3,
};

export class HeldLock implements Held {
  readonly ok = true;
  readonly #lost = new AbortController();
  /** Aborts when the lock is released or lost, which ends what goes on in the background. */
  readonly #ended = new AbortController();
  #deadline: number; #deadlineTimer: NodeJS.Timeout | undefined;
  #renewedAt = performance.now();
  #nap = new AbortController();
  /** Renewals come one after the other, so that the ttl of the last call counts. */
  #renewals: Promise<void> = Promise.resolve();
  #release: Promise<void> | undefined;
  #lastFailure: unknown;
  expiresAt: Date;

  constructor(readonly access: Access, readonly fencingToken: number, public ttlMs: number, sent: number, expiresAt: string, readonly keeper: Keeper) {
    Object.defineProperty(this, "access", { enumerable: false }); // It has the lock token, and a program may log the lock.
    this.#deadline = sent + ttlMs;
    this.expiresAt = new Date(expiresAt);
  }

  get key(): string { return this.keys[0] as string; }
  get keys(): readonly string[] { return this.access.resource.keys; }
  get signal(): AbortSignal { // Timers may be late, as after a long computation.
    if (this.#deadlineTimer !== undefined && performance.now() >= this.#deadline) this.#expire();
    return this.#lost.signal;
  }
  get deadline(): number { return this.#deadline; }
  get loss(): LockLostError | undefined { return this.signal.aborted ? this.#lost.signal.reason as LockLostError : undefined; }

  /**
   * Makes sure that time is left, and begins to watch the deadline. Nobody knows when a lock was granted whose caller had to
   * wait, so such a lock is renewed before the caller gets it.
   */
  async start(isRenewed: boolean, signal: AbortSignal | undefined): Promise<void> {
    const onAbort = () => this.drop(signal?.reason);
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
    if (this.#deadline - performance.now() < this.ttlMs * 2 / 3) {
      this.#deadline = performance.now() + this.ttlMs;
      const forget = () => signal?.removeEventListener("abort", onAbort);
      await this.#renew(this.ttlMs, false).catch((error: unknown) => { forget(); this.drop(error); throw error; });
    }
    signal?.removeEventListener("abort", onAbort);
    this.#ended.signal.throwIfAborted();
    this.#watchDeadline();
    this.keeper.start?.(this);
    if (isRenewed) void this.#keep();
  }

  /** Ends renewals, without a release. */
  #end(reason: unknown): void {
    this.#ended.abort(reason);
    this.#nap.abort();
    clearTimeout(this.#deadlineTimer);
  }

  /** Ends all that keeps the lock. */
  drop(reason: unknown): void { this.#end(reason); this.keeper.end?.(); }

  /** Moves the deadline. Called with each renewal. */
  extend(deadline: number, ttlMs: number, document: Pick<LockDocument, "expires_at">): void {
    this.ttlMs = ttlMs;
    this.#deadline = deadline;
    this.expiresAt = new Date(document.expires_at);
    if (this.#deadlineTimer !== undefined) this.#watchDeadline();
  }

  lose(error: LockLostError): void {
    if (this.#ended.signal.aborted) return;
    this.drop(error);
    this.#lost.abort(error);
  }

  /** Makes the next renewal due. */
  wake(): void { this.#renewedAt = -Infinity; this.#nap.abort(); }

  renew(ttlMs?: number, isBackground = false): Promise<void> {
    const renewed = this.#renewals.then(() => this.#renew(ttlMs ?? this.ttlMs, isBackground));
    this.#renewals = renewed.catch(() => {});
    return renewed;
  }

  async #renew(ttlMs: number, isBackground: boolean): Promise<void> {
    const signal = this.#ended.signal;
    try {
      await repeat(async remainingMs => {
        const began = performance.now();
        const before = this.#deadline;
        // Even if its answer is lost, a shorter ttl may count.
        this.#deadline = Math.min(this.#deadline, began + ttlMs);
        if (this.#deadlineTimer !== undefined) this.#watchDeadline();
        const timeoutMs = Math.min(remainingMs, Math.max(this.ttlMs / 4, 500), this.access.requestTimeoutMs);
        await this.keeper.renew(this, { ttlMs, timeoutMs, signal, isBackground }).catch((error: unknown) => {
          if (!mayHaveHappened(error)) this.#deadline = Math.max(this.#deadline, before); // The former ttl counts still.
          throw error;
        });
        this.#renewedAt = began;
        this.#lastFailure = undefined;
        this.#nap.abort(); // The next renewal is due by the new ttl.
      }, {
        until: () => this.#deadline, signal, isBackground,
        // A credential is replaced, and a right given back, while the lock goes on.
        mayPass: error => {
          this.#lastFailure = error;
          return !(error instanceof LockLostError || error instanceof LockError && error.code === "invalid-request");
        },
      });
    } catch (error) {
      if (error instanceof LockLostError) this.lose(error);
      throw error;
    }
  }

  async #keep(): Promise<void> {
    for (;;) {
      try {
        for (let ms: number; (ms = this.#renewedAt + this.keeper.intervalMs(this.ttlMs) - performance.now()) > 0;) {
          this.#nap = new AbortController();
          await pause(ms, { signal: this.#nap.signal, isBackground: true }).catch(() => {});
          this.#ended.signal.throwIfAborted();
        }
        await this.renew(undefined, true);
      } catch {
        // The deadline tells the caller. Until then a refusal may be taken back.
        await pause(this.ttlMs / 10, { signal: this.#ended.signal, isBackground: true }).catch(() => {});
        if (this.#ended.signal.aborted) return;
      }
    }
  }

  #expire(): void {
    this.lose(new LockLostError(`Lost ${this.access.resource.label}: it was not renewed in time`, undefined, this.#lastFailure));
  }

  #watchDeadline(): void {
    clearTimeout(this.#deadlineTimer);
    if (this.#ended.signal.aborted) return;
    this.#deadlineTimer = setTimeout(() => {
      if (performance.now() < this.#deadline) return this.#watchDeadline();
      this.#expire();
    }, Math.max(this.#deadline - performance.now(), 0) + 1).unref();
  }

  release(): Promise<void> {
    return this.#release ??= this.#releaseNow().catch((error: unknown) => { this.#release = undefined; throw error; });
  }

  async #releaseNow(): Promise<void> {
    const loss = this.loss;
    // A lock that ended unseen may still be there, as may the others of several of which one is lost.
    if (loss !== undefined) return loss.problem === undefined || this.keys.length > 1 ? deleteUntil(this.access, performance.now()).catch(() => {}) : undefined;
    this.#end(new LockError(`${this.access.resource.label} is released`, "released"));
    try {
      await deleteUntil(this.access, performance.now() + this.access.requestTimeoutMs, this.keeper.mayEndLock);
    } catch (error) {
      if (error instanceof LockLostError) this.#lost.abort(error);
      throw error;
    } finally {
      this.keeper.end?.();
    }
  }

  [Symbol.asyncDispose](): Promise<void> { return this.release(); }
}

/** Releases, repeatedly until the time has come. That the lock has ended is a success after a request whose answer was lost. */
export async function deleteUntil({ transport, resource, token, requestTimeoutMs }: Access, until: number, mayBeReleased = false): Promise<void> {
  await repeat(async () => {
    try {
      await transport.request("DELETE", resource.path, {
        attempted: `release ${resource.label}`, headers: { "X-Lock-Token": token }, timeoutMs: requestTimeoutMs / 2,
      });
    } catch (error) {
      if (error instanceof LockLostError && mayBeReleased) return;
      mayBeReleased ||= mayHaveHappened(error);
      throw error;
    }
  }, { until: () => until });
}

/** Whether a request that failed so may have been carried out. */
export function mayHaveHappened(error: unknown): boolean {
  if (error instanceof LockUnavailableError) return error.wasSent;
  if (error instanceof LockHeldError) return false;
  return !(error instanceof LockError) || error.code !== "refused" && (error.problem?.status ?? 500) >= 500;
}
