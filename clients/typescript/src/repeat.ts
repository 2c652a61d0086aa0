// Repeating what failed, at growing intervals, until a point in time.
import { isRepeatable, LockError } from "./errors.js";

export interface RepeatOptions {
  /** By performance.now(). It is asked anew for each pause. */
  until: () => number;
  signal?: AbortSignal | undefined;
  isBackground?: boolean;
  /** Whether a failure may pass; by default what the service calls retryable, and no answer at all. */
  mayPass?: (error: unknown) => boolean;
}

/** Calls attempt until it succeeds, fails for good, or the time has come. It always tries once. */
export async function repeat<T>(attempt: (remainingMs: number) => Promise<T>, options: RepeatOptions): Promise<T> {
  const mayPass = options.mayPass ?? isRepeatable;
  for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, 2000)) {
    options.signal?.throwIfAborted();
    try {
      return await attempt(Math.max(options.until() - performance.now(), 1));
    } catch (error) {
      const remaining = options.until() - performance.now();
      if (options.signal?.aborted || !mayPass(error) || remaining <= 0) throw error;
      const asked = error instanceof LockError ? error.retryAfterMs ?? 0 : 0;
      // Half of what remains is kept for attempts, however long the service asks to wait.
      await pause(Math.min(Math.max(pauseMs * (0.5 + Math.random()), asked), remaining / 2), options);
    }
  }
}

/** Resolves after the time, and rejects with the reason of the signal. */
export function pause(ms: number, options: { signal?: AbortSignal | undefined; isBackground?: boolean } = {}): Promise<void> {
  return new Promise((resolve, reject) => {
    options.signal?.throwIfAborted();
    const onAbort = () => { clearTimeout(timer); reject(options.signal?.reason); };
    const timer = setTimeout(() => { options.signal?.removeEventListener("abort", onAbort); resolve(); }, ms);
    if (options.isBackground) timer.unref();
    options.signal?.addEventListener("abort", onAbort, { once: true });
  });
}
