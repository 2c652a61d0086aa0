// What can go wrong. No message contains a lock token, an Idempotency-Key or a bearer token.
import type { FieldError, ProblemDocument } from "./api.js";

/** Problem types as the service names them, without their prefix, and what the client adds. */
export type ErrorCode = "lock-held" | "lock-lost" | "unavailable" | "released" | "double-lock" | "invalid-request" | "unauthenticated"
  | "forbidden" | "AcquisitionTimeout" | "InvalidArgument" | (string & {});

/** The parent of all errors of this package. */
export class LockError extends Error {
  override name = "LockError";
  /** A second error that this one hides, as in SuppressedError: for example that of a callback whose lock was lost. */
  suppressed?: unknown;

  /** @param problem the answer of the service, if there was one. */
  constructor(message: string, readonly code: ErrorCode, readonly problem?: ProblemDocument, readonly retryAfterMs?: number, cause?: unknown) {
    super(message, cause === undefined ? {} : { cause });
  }

  /** The mistakes in a request that the service refused as invalid. */
  get fields(): readonly FieldError[] { return this.problem?.errors ?? []; }
}

/** Another caller holds the lock, or one of the locks. */
export class LockHeldError extends LockError {
  override name = "LockHeldError";

  constructor(message: string, override readonly problem: ProblemDocument, retryAfterMs?: number) { super(message, "lock-held", problem, retryAfterMs); }

  /** The held one of several keys. */
  get key(): string | undefined { return this.problem.key; }
  get holder(): string | undefined { return this.problem.holder; }
  get since(): Date | undefined { return dateOf(this.problem.acquired_at); }
  /** The time of the service at which the lock expires unless the holder renews it. */
  get until(): Date | undefined { return dateOf(this.problem.expires_at); }
}

const dateOf = (text: string | undefined) => text === undefined ? undefined : new Date(text);

/** The lock has ended, or may have ended, without a release by this client. */
export class LockLostError extends LockError {
  override name = "LockLostError";

  constructor(message: string, problem?: ProblemDocument, cause?: unknown) { super(message, "lock-lost", problem, undefined, cause); }
}

/** The service did not answer, or answered with something other than a problem document. */
export class LockUnavailableError extends LockError {
  override name = "LockUnavailableError";

  /** @param wasSent whether the service may have received, and carried out, the request. */
  constructor(message: string, readonly wasSent: boolean, cause?: unknown) { super(message, "unavailable", undefined, undefined, cause); }
}

/** The lock is already held in this scope; to wait for it would never end. */
export class DoubleLockError extends LockError {
  override name = "DoubleLockError";

  constructor(key: string) {
    super(`Cannot acquire lock "${key}": already held in this async context. Pass the Lock on instead.`, "double-lock");
  }
}

const prefix = "urn:lock-operator:problem:";
const ended = new Set(["lock-ended", "lock-not-found", "wrong-lock-token"]);

/** Returns the error of a problem document. What was attempted is a phrase such as "acquire lock x". */
export function errorOf(attempted: string, problem: ProblemDocument, retryAfterMs?: number): LockError {
  const message = `Cannot ${attempted}: ${problem.detail}`;
  const code = problem.type.startsWith(prefix) ? problem.type.slice(prefix.length) : "unavailable";
  if (code === "lock-held") return new LockHeldError(message, problem, retryAfterMs);
  if (ended.has(code)) return new LockLostError(message, problem);
  return new LockError(message, code, problem, retryAfterMs);
}

/** Whether the same request may succeed later. */
export function isRepeatable(error: unknown): error is LockError {
  return error instanceof LockUnavailableError || error instanceof LockError && !(error instanceof LockHeldError) && error.problem?.retryable === true;
}
