// The examples of SyncGuard's page "Core Concepts" that concern locking, each under the name of its section.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { LockError } from "../src/index.js";
import { createBackend, createLock, getById, getByIdRaw, getByKey, getByKeyRaw, normalizeKey, owns } from "../src/syncguard.js";
import { eventually, isFree, lockObjects, newClient, newKey, skip } from "./support.js";

describe("SyncGuard", { skip }, () => {
  const client = newClient();
  const backend = createBackend(client);
  const lock = createLock(backend);

  test("Lock Lifecycle", async () => {
    const key = newKey("resource");
    assert.equal(await lock(async () => await backend.isLocked({ key }), { key }), true);
    {
      await using lock = await backend.acquire({ key, ttlMs: 30000 });
      assert.ok(lock.ok);
      assert.deepEqual({ ...await backend.acquire({ key, ttlMs: 30000 }) }.ok, false);
    }
    assert.equal(await backend.isLocked({ key }), false);
  });

  test("Lock Lifecycle: Contention Handling", async () => {
    const key = newKey("resource");
    await using _lock = await backend.acquire({ key, ttlMs: 30000 });
    const second = await backend.acquire({ key, ttlMs: 30000 });
    assert.ok(!second.ok && second.reason === "locked");
  });

  test("Lock Lifecycle: Crash Safety", async () => {
    const key = newKey("resource");
    await backend.acquire({ key, ttlMs: 500 });
    await eventually(() => isFree(key), "the expiry");
  });

  test("Lock Keys", async () => {
    for (const key of [`payment:${1}`, `job:daily-report:${"2026-01-01"}`, `deploy:${"prod"}`, `webhook:${"e"}`]) {
      await using result = await backend.acquire({ key: newKey(key), ttlMs: 30000 });
      assert.ok(result.ok);
    }
    const isInvalid = (error: unknown) => error instanceof LockError && error.code === "InvalidArgument";
    await assert.rejects(backend.acquire({ key: "ü".repeat(257), ttlMs: 30000 }), isInvalid);
    await assert.rejects(backend.acquire({ key: "", ttlMs: 30000 }), isInvalid);
    assert.equal(normalizeKey("u\u0308"), "\u00fc");
    const key = newKey("u\u0308");
    await using _result = await backend.acquire({ key, ttlMs: 30000 });
    assert.equal(await backend.isLocked({ key: key.normalize("NFC") }), true);
    await using longest = await backend.acquire({ key: newKey("x").padEnd(512, "x"), ttlMs: 30000 });
    assert.ok(longest.ok);
  });

  test("Ownership & Lock IDs", async () => {
    const key = newKey("resource");
    const result = await backend.acquire({ key, ttlMs: 30000 });
    assert.ok(result.ok);
    const { lockId } = result;
    assert.match(lockId, /^[A-Za-z0-9_-]{22}$/);
    assert.equal((await backend.extend({ lockId, ttlMs: 30000 })).ok, true);
    assert.deepEqual(await backend.release({ lockId }), { ok: true });
    assert.deepEqual(await backend.release({ lockId }), { ok: false });
    assert.deepEqual(await backend.extend({ lockId, ttlMs: 30000 }), { ok: false });
    await assert.rejects(backend.release({ lockId: "short" }), (error: unknown) => error instanceof LockError && error.code === "InvalidArgument");
  });

  test("Ownership & Lock IDs: Checking ownership", async () => {
    await using lock = await backend.acquire({ key: newKey("resource"), ttlMs: 30000 });
    assert.ok(lock.ok);
    const { lockId } = lock;
    assert.equal(await owns(backend, lockId), true);
    const info = await getById(backend, lockId);
    assert.ok(info);
    assert.ok(info.expiresAtMs - Date.now() > 0);
    assert.equal(info.fence, lock.fence);
  });

  test("Ownership & Lock IDs: fences compare as texts", async () => {
    const key = newKey("resource");
    const first = await backend.acquire({ key, ttlMs: 30000 });
    assert.ok(first.ok);
    await first.release();
    await using second = await backend.acquire({ key, ttlMs: 30000 });
    assert.ok(second.ok);
    assert.equal(first.fence.length, 19);
    assert.ok(first.fence < second.fence);
  });

  test("TTL & Expiration: Extending locks", async () => {
    const key = newKey("batch:report");
    await using lock = await backend.acquire({ key, ttlMs: 60000 });
    assert.ok(lock.ok);
    const extended = await lock.extend(20000);
    assert.ok(extended.ok);
    assert.ok(extended.expiresAtMs < lock.expiresAtMs, "extend replaces the ttl");
  });

  test("TTL & Expiration: Heartbeat pattern", async () => {
    const key = newKey("long-task");
    await using lock = await backend.acquire({ key, ttlMs: 60000 });
    if (!lock.ok) throw new Error("Failed to acquire lock");
    assert.equal((await lock.extend(60000)).ok, true);
    await client.forceRelease(key, "a test");
    assert.equal((await lock.extend(60000)).ok, false);
  });

  test("Retry Strategy", async () => {
    const key = newKey("hot-resource");
    const first = await backend.acquire({ key, ttlMs: 30000 });
    assert.ok(first.ok);
    const second = lock(() => "done", { key, acquisition: { maxRetries: 20, timeoutMs: 60000 } });
    await first.release();
    assert.equal(await second, "done");
  });

  test("Retry Strategy: When acquisition fails", async () => {
    const key = newKey("resource");
    await using _held = await backend.acquire({ key, ttlMs: 30000 });
    const isTimeout = (error: unknown) => error instanceof LockError && error.code === "AcquisitionTimeout";
    await assert.rejects(lock(() => {}, { key, acquisition: { maxRetries: 3, timeoutMs: 200 } }), isTimeout);
    await assert.rejects(lock(() => {}, { key, acquisition: { maxRetries: 0 } }), isTimeout);
  });

  test("Ownership Checking: Check if a resource is locked", async () => {
    const key = newKey("resource");
    assert.equal(await getByKey(backend, key), null);
    await using lock = await backend.acquire({ key, ttlMs: 30000 });
    assert.ok(lock.ok);
    const info = await getByKey(backend, key);
    assert.equal(info?.expiresAtMs, lock.expiresAtMs);
    assert.equal(info?.fence, lock.fence);
  });

  test("Ownership Checking: Check if you still own a lock", async () => {
    const key = newKey("resource");
    const lock = await backend.acquire({ key, ttlMs: 30000 });
    assert.ok(lock.ok);
    await client.forceRelease(key, "a test");
    assert.equal(await owns(backend, lock.lockId), false);
    await using other = await createBackend(client).acquire({ key, ttlMs: 30000 });
    assert.ok(other.ok);
    assert.equal(await owns(backend, lock.lockId), false);
    assert.equal(await owns(backend, other.lockId), false, "a lockId counts in its own process and backend");
  });

  test("Ownership Checking: Security Note", async () => {
    const key = newKey("resource");
    await using lock = await backend.acquire({ key, ttlMs: 30000 });
    assert.ok(lock.ok);
    const info = await getByKey(backend, key);
    assert.ok(info && !JSON.stringify(info).includes(key) && !JSON.stringify(info).includes(lock.lockId));
    assert.equal((await getByKeyRaw(backend, key))?.key, key);
    assert.equal((await getByIdRaw(backend, lock.lockId))?.lockId, lock.lockId);
  });

  test("capabilities", () => {
    assert.deepEqual(backend.capabilities, { backend: "forrst", supportsFencing: true, timeAuthority: "server" });
  });

  test("no lock is left", async () => {
    await eventually(async () => (await lockObjects()).length === 0, "the end of all locks");
  });
});
