import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import type { AddressInfo } from "node:net";
import { describe, test } from "node:test";
import { LockError, LockLostError } from "../src/index.js";
import { aborted, backgroundErrors, eventually, isFree, lockObjects, newClient, newKey, Proxy, skip } from "./support.js";

describe("An answer that is lost", { skip }, () => {
  const direct = newClient();

  for (const isSet of [false, true]) {
    test(`of an acquisition of ${isSet ? "several locks" : "one lock"} is asked for again, and finds the grant`, async () => {
      await using proxy = await Proxy.start();
      const client = newClient({ url: proxy.url });
      const key = newKey("lost");
      let cuts = 0;
      proxy.isLost = request => request.startsWith("POST") && cuts++ === 0;
      await using held = await (isSet ? client.acquireAll([key, newKey("lost")]) : client.acquire(key));
      assert.equal(proxy.requests.length, 2);
      assert.equal((await direct.get(key))?.key, key);
      assert.equal(held.signal.aborted, false);
    });
  }

  test("of a renewal is asked for again", async () => {
    await using proxy = await Proxy.start();
    await using held = await newClient({ url: proxy.url }).acquire(newKey("lost"));
    let cuts = 0;
    proxy.isLost = request => request.startsWith("PUT") && cuts++ === 0;
    await held.renew();
    assert.equal(cuts, 2);
  });

  test("of a release is a success when the lock has ended", async () => {
    await using proxy = await Proxy.start();
    const key = newKey("lost");
    const held = await newClient({ url: proxy.url }).acquire(key);
    let cuts = 0;
    proxy.isLost = request => request.startsWith("DELETE") && cuts++ === 0;
    await held.release();
    assert.equal(await direct.get(key), undefined);
  });

  test("that stays lost is an error, and the lock is released in the background", async () => {
    await using proxy = await Proxy.start();
    const key = newKey("lost");
    let isCut = true;
    proxy.isLost = request => isCut && request.startsWith("POST");
    const failed = newClient({ url: proxy.url, requestTimeoutMs: 3000 }).acquire(key);
    await assert.rejects(failed, (error: unknown) => error instanceof LockError && error.code === "unavailable");
    isCut = false;
    await eventually(() => isFree(key), "the release in the background");
  });

  test("that another server has given is an error, and is not asked for again", async () => {
    let requests = 0;
    const server = http.createServer((_, response) => { requests++; response.writeHead(404).end("no such page"); }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const client = newClient({ url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` });
    await assert.rejects(client.acquire("a"), (error: unknown) => error instanceof LockError && error.code === "refused");
    assert.equal(requests, 1);
    server.closeAllConnections();
    server.close();
  });

  test("of every renewal loses the lock at its deadline", async () => {
    await using proxy = await Proxy.start();
    const held = await newClient({ url: proxy.url }).acquire(newKey("lost"), { ttlMs: 1500 });
    proxy.isLost = () => true;
    const reason = await aborted(held.signal);
    assert.ok(reason instanceof LockLostError && reason.cause instanceof LockError);
    proxy.isLost = () => false;
    await held.release();
  });

  test("no lock is left", async () => {
    await eventually(async () => (await lockObjects()).length === 0, "the end of all locks");
    assert.deepEqual(backgroundErrors, []);
  });
});

describe("An abort", { skip }, () => {
  const direct = newClient();
  const reason = new Error("no longer needed");

  test("before the request sends none", async () => {
    await using proxy = await Proxy.start();
    await assert.rejects(newClient({ url: proxy.url }).acquire(newKey("abort"), { signal: AbortSignal.abort(reason) }), reason);
    assert.deepEqual(proxy.requests, []);
  });

  test("while the caller waits leaves the queue", async () => {
    await using proxy = await Proxy.start();
    const key = newKey("abort");
    const held = await direct.acquire(key);
    const stop = new AbortController();
    const sent = proxy.next("wait_seconds");
    const waiter = newClient({ url: proxy.url }).acquire(key, { waitMs: 1500, signal: stop.signal });
    await sent;
    stop.abort(reason);
    await assert.rejects(waiter, reason);
    await held.release();
    await eventually(() => isFree(key), "the end of the lock");
    await using _next = await direct.acquire(key, { waitMs: 60_000 });
  });

  test("after the grant and before the answer releases the lock", async () => {
    await using proxy = await Proxy.start();
    const key = newKey("abort");
    const stop = new AbortController();
    proxy.isLost = (request, answer) => {
      // The answer is not cut, but the caller is gone when it comes.
      if (request.startsWith("POST") && answer.includes(" 201 ")) stop.abort(reason);
      return false;
    };
    await assert.rejects(newClient({ url: proxy.url }).acquire(key, { signal: stop.signal }), reason);
    await eventually(() => isFree(key), "the release in the background");
  });

  test("while the lock is held does not concern it", async () => {
    const stop = new AbortController();
    await using held = await direct.acquire(newKey("abort"), { signal: stop.signal });
    stop.abort(reason);
    await held.renew();
    assert.equal(held.signal.aborted, false);
  });

  test("no lock is left", async () => {
    await eventually(async () => (await lockObjects()).length === 0, "the end of all locks");
    assert.deepEqual(backgroundErrors, []);
  });
});
