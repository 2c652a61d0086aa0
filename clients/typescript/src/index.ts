export { LockClient, type AcquireAllOptions, type AcquireOptions, type Contended, type LockClientOptions, type LockInfo } from "./client.js";
export { DoubleLockError, LockError, LockHeldError, LockLostError, LockUnavailableError, type ErrorCode } from "./errors.js";
export type { Held } from "./held.js";
export type { HolderReference, ProblemDocument } from "./api.js";
export type { TokenSource } from "./transport.js";
