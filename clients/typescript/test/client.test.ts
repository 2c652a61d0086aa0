import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { inspect } from "node:util";
import { LockError, LockHeldError, LockLostError, LockUnavailableError } from "../src/index.js";
import { aborted, backgroundErrors, control, eventually, lockObjects, newClient, newKey, Proxy, skip, tokenFile } from "./support.js";

describe("LockClient", { skip }, () => {
  const client = newClient();

  test("await using holds a lock with a fencing token and releases it", async () => {
    const key = newKey("using");
    let token: number;
    {
      await using held = await client.acquire(key, { reason: "a test" });
      token = held.fencingToken;
      assert.equal(held.key, key);
      assert.ok(held.deadline > performance.now());
      const info = await client.get(key);
      assert.equal(info?.fencingToken, token);
      assert.equal(info?.reason, "a test");
      assert.equal(info?.ttlMs, 30_000);
    }
    assert.equal(await client.get(key), undefined);
    await using next = await client.acquire(key);
    assert.ok(next.fencingToken > token);
  });

  test("keys with every kind of character name one lock", async () => {
    const key = newKey("a/b ü%&?#+'\"");
    await using held = await client.acquire(key, { function: "f/ä" });
    assert.equal((await client.get(key, { function: "f/ä" }))?.key, key);
    assert.equal(await client.get(key), undefined);
    await held.renew();
  });

  test("contention is an error that names holder and times", async () => {
    const key = newKey("contention");
    await using _held = await client.acquire(key);
    await assert.rejects(client.acquire(key), (error: unknown) => {
      assert.ok(error instanceof LockHeldError && error instanceof LockError);
      assert.equal(error.code, "lock-held");
      assert.ok(error.holder);
      assert.ok(error.since instanceof Date && error.until instanceof Date && error.until > error.since);
      return true;
    });
  });

  test("contention is a result for a caller who asks for one", async () => {
    const key = newKey("contention");
    await using held = await client.acquire(key, { onContention: "result" });
    assert.ok(held.ok);
    await using second = await client.acquire(key, { onContention: "result" });
    assert.equal(second.ok, false);
    if (second.ok) return;
    assert.equal(second.reason, "locked");
    assert.ok(second.holder && second.until);
    assert.equal(second.key, key);
  });

  test("a wait that is longer than the service allows is split, and ends with the release", async () => {
    const key = newKey("wait");
    await using proxy = await Proxy.start();
    const waiting = newClient({ url: proxy.url });
    const held = await client.acquire(key);
    const waiter = waiting.acquire(key, { waitMs: 600_000 });
    // The service allows 2 s: the first request is refused, and the third one follows a wait that has run out.
    await eventually(() => proxy.requests.length >= 3, "a third request");
    await held.release();
    await using next = await waiter;
    assert.ok(next.fencingToken > held.fencingToken);
  });

  test("a wait that runs out is contention", async () => {
    const key = newKey("wait");
    await using _held = await client.acquire(key);
    const began = performance.now();
    await assert.rejects(client.acquire(key, { waitMs: 300 }), LockHeldError);
    assert.ok(performance.now() - began >= 300);
  });

  test("a lock whose grant comes late is renewed before the caller gets it", async () => {
    await using proxy = await Proxy.start();
    proxy.onRequest = head => { proxy.delayMs = head.startsWith("POST") ? 1100 : 0; };
    await using held = await newClient({ url: proxy.url }).acquire(newKey("late"), { ttlMs: 3000 });
    assert.deepEqual(proxy.requests.slice(0, 2).map(each => each.slice(0, 4)), ["POST", "PUT "]);
    assert.ok(held.deadline > performance.now());
  });

  test("the deadline counts from before the request, not from the answer", async () => {
    await using proxy = await Proxy.start();
    let arrived = 0;
    proxy.onRequest = () => { arrived = performance.now(); };
    proxy.delayMs = 300;
    const held = await newClient({ url: proxy.url }).acquire(newKey("deadline"), { ttlMs: 60_000 });
    assert.ok(held.deadline <= arrived + 60_000);
    await held.renew();
    assert.ok(held.deadline <= arrived + 60_000);
    proxy.delayMs = 0;
    await held.release();
  });

  test("a lock is renewed in the background for longer than its ttl", async () => {
    const key = newKey("renewed");
    await using proxy = await Proxy.start();
    await using held = await newClient({ url: proxy.url }).acquire(key, { ttlMs: 3000 });
    const first = held.deadline;
    await eventually(() => held.deadline > first + 3000, "a renewal after the first deadline");
    assert.equal(held.signal.aborted, false);
  });

  test("renew replaces the ttl", async () => {
    await using held = await client.acquire(newKey("renew"), { ttlMs: 60_000 });
    const before = held.deadline;
    await held.renew(20_000);
    assert.equal(held.ttlMs, 20_000);
    assert.ok(held.deadline < before);
    await assert.rejects(held.renew(1e12), (error: unknown) => error instanceof LockError && error.fields[0]?.field === "ttl_seconds");
  });

  test("a refused renewal leaves the deadline as it was", async () => {
    await using held = await client.acquire(newKey("renew"), { ttlMs: 60_000, hold: true });
    const before = held.deadline;
    await assert.rejects(held.renew(3000), (error: unknown) => error instanceof LockError && error.fields[0]?.field === "ttl_seconds");
    assert.equal(held.deadline, before);
  });

  test("a lock is lost at its deadline also before a timer that is late", async () => {
    const held = await client.acquire(newKey("late"), { ttlMs: 500, isRenewed: false });
    while (performance.now() < held.deadline) { /* A long computation. */ }
    assert.ok(held.signal.aborted);
    await held.release();
  });

  test("a lock that is logged does not show its token", async () => {
    await using held = await client.acquire(newKey("logged"));
    assert.doesNotMatch(inspect(held, { depth: 9 }) + JSON.stringify(held), /lock_[a-z0-9]{8}/);
  });

  test("a lock without renewals is lost at its deadline", async () => {
    const held = await client.acquire(newKey("expires"), { ttlMs: 500, isRenewed: false });
    const reason = await aborted(held.signal);
    assert.ok(reason instanceof LockLostError);
    assert.ok(performance.now() >= held.deadline);
    await held.release(); // The signal has told it.
  });

  test("release is repeated without effect, and renew after it is refused", async () => {
    const held = await client.acquire(newKey("release"));
    await held.release();
    await held.release();
    await held[Symbol.asyncDispose]();
    await assert.rejects(held.renew(), (error: unknown) => error instanceof LockError && error.code === "released");
    assert.equal(held.signal.aborted, false);
  });

  test("a lock that is forced aborts the signal, with the answer of the service", async () => {
    const key = newKey("forced");
    const held = await client.acquire(key, { ttlMs: 3000 });
    await client.forceRelease(key, "a test", { fencingToken: held.fencingToken });
    const reason = await aborted(held.signal);
    assert.ok(reason instanceof LockLostError);
    assert.equal(reason.problem?.status, 410);
    await held.release();
    await assert.rejects(client.forceRelease(key, "a test"), LockLostError);
  });

  test("a release that finds the lock lost is reported once", async () => {
    const key = newKey("forced");
    const held = await client.acquire(key);
    await client.forceRelease(key, "a test");
    await assert.rejects(held.release(), LockLostError);
    assert.ok(held.signal.aborted);
    await held.release();
  });

  test("the end of await using throws what the release has failed with", async () => {
    const key = newKey("forced");
    await assert.rejects(async () => {
      await using _held = await client.acquire(key);
      await client.forceRelease(key, "a test");
    }, LockLostError);
    await assert.rejects(async () => {
      await using _held = await client.acquire(key);
      await client.forceRelease(key, "a test");
      throw new Error("mine");
    }, (error: { name: string; error: unknown; suppressed: Error }) => {
      assert.equal(error.name, "SuppressedError");
      assert.ok(error.error instanceof LockLostError);
      assert.equal(error.suppressed.message, "mine");
      return true;
    });
  });

  test("force with the fencing token of an earlier grant does nothing to a later one", async () => {
    const key = newKey("forced");
    const first = await client.acquire(key);
    await first.release();
    await using _second = await client.acquire(key);
    await assert.rejects(client.forceRelease(key, "a test", { fencingToken: first.fencingToken }),
      (error: unknown) => error instanceof LockError && error.code === "version-mismatch");
  });

  test("run returns the result and releases", async () => {
    const key = newKey("run");
    assert.equal(await client.run(key, {}, async held => (await client.get(key))?.fencingToken === held.fencingToken), true);
    assert.equal(await client.get(key), undefined);
    await assert.rejects(client.run(key, {}, () => { throw new Error("mine"); }), /^Error: mine$/);
    assert.equal(await client.get(key), undefined);
  });

  test("run rejects with the loss, which has the error of the callback", async () => {
    const key = newKey("run");
    const lost = client.run(key, { ttlMs: 3000 }, async held => {
      await client.forceRelease(key, "a test");
      await aborted(held.signal);
      throw new Error("mine");
    });
    await assert.rejects(lost, (error: unknown) => error instanceof LockLostError && (error.suppressed as Error).message === "mine");
    const unsettled = client.run(key, { ttlMs: 3000 }, async held => {
      await client.forceRelease(key, "a test");
      await aborted(held.signal);
      held.signal.throwIfAborted();
    });
    await assert.rejects(unsettled, (error: unknown) => error instanceof LockLostError && error.suppressed === undefined);
  });

  test("several keys are held as one, all or none", async () => {
    const keys = [newKey("set"), newKey("set"), newKey("set")];
    {
      await using held = await client.acquireAll(keys, { reason: "a test" });
      assert.deepEqual(held.keys, keys);
      const infos = await Promise.all(keys.map(key => client.get(key)));
      assert.equal(Math.max(...infos.map(info => info?.fencingToken ?? NaN)), held.fencingToken);
      await held.renew(20_000);
      const error = await client.acquireAll([newKey("set"), keys[1] as string]).catch((caught: unknown) => caught);
      assert.ok(error instanceof LockHeldError);
      assert.equal(error.key, keys[1]);
      await using second = await client.acquireAll(keys, { onContention: "result", together: "strict" });
      assert.equal(second.ok, false);
    }
    for (const key of keys) assert.equal(await client.get(key), undefined);
  });

  test("a set one of whose locks is forced is lost", async () => {
    const keys = [newKey("set"), newKey("set")];
    const held = await client.acquireAll(keys, { ttlMs: 3000 });
    await client.forceRelease(keys[0] as string, "a test");
    const reason = await aborted(held.signal);
    assert.ok(reason instanceof LockLostError);
    assert.equal(reason.problem?.key, keys[0]);
    await client.forceRelease(keys[1] as string, "a test");
  });

  test("an invalid request tells its mistakes, and no secret", async () => {
    await assert.rejects(client.acquire(newKey("invalid"), { ttlMs: -1, reason: "x".repeat(2000) }), (error: unknown) => {
      assert.ok(error instanceof LockError);
      assert.deepEqual(error.fields.map(each => each.field).sort(), ["reason", "ttl_seconds"]);
      return true;
    });
  });

  test("a service that is not there is unavailable, and leaves nothing to release", async () => {
    const error = await newClient({ url: "http://127.0.0.1:1", requestTimeoutMs: 200 }).acquire("a").catch((caught: unknown) => caught);
    assert.ok(error instanceof LockUnavailableError);
    assert.equal(error.wasSent, false);
  });

  test("a façade that is killed and started anew finds the lock held", async () => {
    const key = newKey("restart");
    await using held = await client.acquire(key, { ttlMs: 60_000 });
    await control("kill");
    const renewed = held.renew();
    await control("start");
    await renewed;
    assert.equal(held.signal.aborted, false);
  });

  test("a token that has expired and is replaced keeps the lock", { skip: tokenFile === "" && "no authentication" }, async () => {
    const key = newKey("token");
    await using held = await client.acquire(key, { ttlMs: 60_000 });
    await control("token/invalid");
    await assert.rejects(client.acquire(newKey("token")), (error: unknown) => error instanceof LockError && error.code === "unauthenticated");
    const renewed = held.renew();
    await control("token/valid");
    await renewed;
    assert.equal((await client.get(key))?.fencingToken, held.fencingToken);
  });

  test("a token may come from a function", { skip: tokenFile === "" && "no authentication" }, async () => {
    let calls = 0;
    const other = newClient({ token: async () => { calls++; return "wrong"; } });
    await assert.rejects(other.get(newKey("token")), (error: unknown) => error instanceof LockError && error.code === "unauthenticated" && !error.message.includes("wrong"));
    assert.equal(calls, 1);
  });

  test("no lock is left", async () => {
    await eventually(async () => (await lockObjects()).length === 0, "the end of all locks");
    assert.deepEqual(backgroundErrors, []);
  });
});
