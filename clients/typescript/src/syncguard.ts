// The shape of SyncGuard's backends, for programs that are written against it. A lockId stands for a lock token that only the memory
// of this process has: another process cannot release or extend with it.
import { createHash, randomBytes } from "node:crypto";
import { LockError, LockLostError } from "./errors.js";
import type { LockClient } from "./client.js";
import type { Held } from "./held.js";

export interface AcquiredResult extends AsyncDisposable {
  ok: true;
  /** 22 characters of base64url. */
  lockId: string;
  /** By the clock of the service. */
  expiresAtMs: number;
  /** 19 digits, so that fences compare as texts. */
  fence: string;
  release(): Promise<{ ok: boolean }>;
  extend(ttlMs: number): Promise<ExtendResult>;
}
export type AcquireResult = AcquiredResult | AsyncDisposable & { ok: false; reason: "locked" };
export type ExtendResult = { ok: true; expiresAtMs: number } | { ok: false };
export type LookupQuery = { key: string } | { lockId: string };

/** A lock without its key and lockId, which are secrets to logs: only their hashes. */
export interface SanitizedInfo { keyHash: string; lockIdHash: string; expiresAtMs: number; acquiredAtMs: number; fence: string }
/** LockId is empty for a lock of another process. */
export interface RawInfo extends SanitizedInfo { key: string; lockId: string }

export interface Backend {
  readonly capabilities: { readonly backend: "forrst"; readonly supportsFencing: true; readonly timeAuthority: "server" };
  acquire(options: { key: string; ttlMs: number; waitMs?: number; signal?: AbortSignal | undefined }): Promise<AcquireResult>;
  release(options: { lockId: string }): Promise<{ ok: boolean }>;
  extend(options: { lockId: string; ttlMs: number }): Promise<ExtendResult>;
  isLocked(options: { key: string }): Promise<boolean>;
  lookup(query: LookupQuery): Promise<SanitizedInfo | null>;
  lookupRaw(query: LookupQuery): Promise<RawInfo | null>;
}

/** Returns the key in NFC, or throws if it is empty or longer than 512 bytes. */
export function normalizeKey(key: string): string {
  const normal = key.normalize("NFC");
  const bytes = Buffer.byteLength(normal);
  if (bytes < 1 || bytes > 512) throw new LockError(`A key has 1 to 512 bytes of UTF-8, not ${bytes}`, "InvalidArgument");
  return normal;
}

function checkLockId(lockId: string): string {
  if (!/^[A-Za-z0-9_-]{22}$/.test(lockId)) throw new LockError("A lockId has 22 characters of base64url", "InvalidArgument");
  return lockId;
}
const hash = (text: string) => createHash("sha256").update(text).digest("hex").slice(0, 24);
export const fenceOf = (fencingToken: number): string => String(fencingToken).padStart(19, "0");

/** Returns the client's locks in the shape of a backend of SyncGuard. As there, nothing renews them but extend. */
export function createBackend(client: LockClient): Backend {
  const locks = new Map<string, Held>();

  /** Calls with the lock of the id, and answers whether there was one to act on. */
  async function withLock<T>(lockId: string, act: (held: Held) => Promise<T>): Promise<T | undefined> {
    const held = locks.get(checkLockId(lockId));
    if (held === undefined || held.signal.aborted) return undefined;
    try {
      return await act(held);
    } catch (error) {
      if (error instanceof LockLostError) return undefined;
      throw error;
    }
  }

  const backend: Backend = {
    capabilities: { backend: "forrst", supportsFencing: true, timeAuthority: "server" },
    async acquire({ key, ttlMs, waitMs = 0, signal }) {
      const held = await client.acquire(normalizeKey(key), { ttlMs, waitMs, signal, isRenewed: false, hold: false, onContention: "result" });
      if (!held.ok) return { ok: false, reason: "locked", async [Symbol.asyncDispose]() { /* Nothing is held. */ } };
      const lockId = randomBytes(16).toString("base64url");
      locks.set(lockId, held);
      held.signal.addEventListener("abort", () => locks.delete(lockId), { once: true });
      return {
        ok: true, lockId, expiresAtMs: held.expiresAt.getTime(), fence: fenceOf(held.fencingToken),
        release: () => backend.release({ lockId }),
        extend: extendMs => backend.extend({ lockId, ttlMs: extendMs }),
        async [Symbol.asyncDispose]() { await backend.release({ lockId }); },
      };
    },
    async release({ lockId }) {
      const released = await withLock(lockId, async held => { await held.release(); return true; });
      locks.delete(lockId);
      return { ok: released === true };
    },
    async extend({ lockId, ttlMs }) {
      const expiresAtMs = await withLock(lockId, async held => { await held.renew(ttlMs); return held.expiresAt.getTime(); });
      return expiresAtMs === undefined ? { ok: false } : { ok: true, expiresAtMs };
    },
    async isLocked({ key }) { return await client.get(normalizeKey(key)) !== undefined; },
    async lookup(query) {
      const { key: _key, lockId: _lockId, ...sanitized } = await backend.lookupRaw(query) ?? {};
      return "fence" in sanitized ? sanitized : null;
    },
    async lookupRaw(query) {
      const own = "lockId" in query ? locks.get(checkLockId(query.lockId)) : undefined;
      const key = "key" in query ? normalizeKey(query.key) : own?.key;
      const info = key === undefined ? undefined : await client.get(key);
      if (info?.fencingToken === undefined || own !== undefined && own.fencingToken !== info.fencingToken) return null;
      const fence = fenceOf(info.fencingToken);
      const lockId = [...locks].find(([, held]) => held.fencingToken === info.fencingToken)?.[0] ?? "";
      // The service tells nobody a name of the owner. The fence stands for the grant, and so for its lockId.
      return { key: info.key, lockId, keyHash: hash(info.key), lockIdHash: hash(fence), expiresAtMs: info.expiresAt.getTime(), acquiredAtMs: info.acquiredAt.getTime(), fence };
    },
  };
  return backend;
}

export interface LockOptions {
  key: string;
  /** 30,000 by default. */
  ttlMs?: number;
  /** TimeoutMs is 5,000 by default. Waiting callers queue in the service and do not retry; only maxRetries: 0 counts, and means no wait. */
  acquisition?: { maxRetries?: number; retryDelayMs?: number; timeoutMs?: number };
  signal?: AbortSignal;
}

/** Returns the function lock of SyncGuard: it calls fn with the lock, and releases it. */
export function createLock(backend: Backend) {
  return async function lock<T>(fn: () => T | Promise<T>, { key, ttlMs = 30_000, acquisition = {}, signal }: LockOptions): Promise<T> {
    const waitMs = acquisition.maxRetries === 0 ? 0 : acquisition.timeoutMs ?? 5000;
    await using result = await backend.acquire({ key, ttlMs, waitMs, signal });
    if (!result.ok) throw new LockError(`Cannot acquire lock "${key}" within ${waitMs} ms`, "AcquisitionTimeout");
    return await fn();
  };
}

export const getByKey = (backend: Backend, key: string): Promise<SanitizedInfo | null> => backend.lookup({ key });
export const getById = (backend: Backend, lockId: string): Promise<SanitizedInfo | null> => backend.lookup({ lockId });
export const getByKeyRaw = (backend: Backend, key: string): Promise<RawInfo | null> => backend.lookupRaw({ key });
export const getByIdRaw = (backend: Backend, lockId: string): Promise<RawInfo | null> => backend.lookupRaw({ lockId });
export const owns = async (backend: Backend, lockId: string): Promise<boolean> => await backend.lookup({ lockId }) !== null;
