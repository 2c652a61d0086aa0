import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, test } from "node:test";
import { LockClient, LockError, LockHeldError, LockLostError } from "../src/index.js";
import { FakeService } from "./fake.js";
import { aborted, control, eventually, isFree, lockObjects, newClient, newKey, Proxy, skip } from "./support.js";

describe("A connection that holds a lock", () => {
  const clientOf = (service: FakeService) => new LockClient({ url: service.url, namespace: "n", requestTimeoutMs: 60_000, onReleaseError: error => { throw error; } });

  test("ends with the release, which comes first", async () => {
    await using service = await FakeService.start();
    const client = clientOf(service);
    {
      await using held = await client.acquire("a", { hold: true });
      assert.equal(held.fencingToken, 1);
      assert.ok(held.deadline > performance.now());
      assert.deepEqual({ ...await client.acquire("a", { hold: true, onContention: "result" }) }.ok, false);
      await assert.rejects(client.acquire("a"), LockHeldError);
    }
    assert.equal(service.locks.size, 0);
    assert.deepEqual(service.requests, ["POST hold", "POST hold", "POST", "DELETE"]);
  });

  test("moves the deadline by its events, whatever the clock of the service shows", async () => {
    await using service = await FakeService.start();
    service.skewMs = 3_600_000;
    await using held = await clientOf(service).acquire("a", { hold: true, ttlMs: 60_000 });
    const first = held.deadline;
    const lock = service.lock("a");
    service.skewMs += 30_000; // As if half a minute had gone by since the grant.
    service.renew("a");
    await eventually(() => held.deadline !== first, "another deadline");
    assert.ok(Math.abs(held.deadline - first - (lock.renewed - lock.acquired)) < 1000);
    assert.equal(service.requests.length, 1);
  });

  test("that breaks is replaced by another one", async () => {
    await using service = await FakeService.start();
    await using held = await clientOf(service).acquire("a", { hold: true });
    service.cut("a");
    await eventually(() => service.lock("a").connection !== undefined, "another connection");
    assert.deepEqual(service.requests, ["POST hold", "PUT hold"]);
    assert.equal(held.signal.aborted, false);
  });

  test("that is silent is replaced by another one", async () => {
    await using service = await FakeService.start();
    await using held = await clientOf(service).acquire("a", { hold: true, ttlMs: 5000 });
    service.isMute = true;
    await eventually(() => service.requests.includes("PUT hold"), "another connection");
    service.isMute = false;
    assert.equal(held.signal.aborted, false);
  });

  test("is replaced when the service asks for it", async () => {
    await using service = await FakeService.start();
    await using held = await clientOf(service).acquire("a", { hold: true });
    service.reconnect("a");
    await eventually(() => service.lock("a").connection !== undefined, "another connection");
    assert.equal(held.signal.aborted, false);
  });

  test("is replaced by renew, and the event of the former one loses nothing", async () => {
    await using service = await FakeService.start();
    await using held = await clientOf(service).acquire("a", { hold: true });
    await held.renew(20_000);
    assert.equal(held.ttlMs, 20_000);
    assert.deepEqual(service.requests, ["POST hold", "PUT hold"]);
    service.renew("a");
    await held.renew();
    assert.equal(held.signal.aborted, false);
  });

  test("that is silent, and whose successor gets no answer in time, loses nothing", async () => {
    await using service = await FakeService.start();
    await using held = await clientOf(service).acquire("a", { hold: true, ttlMs: 5000 });
    const { fencing } = service.lock("a");
    service.stalled = 1;
    await held.renew();
    assert.deepEqual(service.requests, ["POST hold", "PUT hold", "PUT hold"]);
    assert.equal(service.lock("a").fencing, fencing);
    assert.equal(held.signal.aborted, false);
  });

  test("is released while another one takes it up", async () => {
    await using service = await FakeService.start();
    const held = await clientOf(service).acquire("a", { hold: true });
    service.stalled = Infinity;
    const renewed = assert.rejects(held.renew(), (error: unknown) => error instanceof LockError && error.code === "released");
    await eventually(() => service.requests.includes("PUT hold"), "the request to take it up");
    await held.release();
    await renewed;
    assert.equal(service.locks.size, 0);
  });

  test("that tells a loss aborts the signal", async () => {
    await using service = await FakeService.start();
    const held = await clientOf(service).acquire("a", { hold: true });
    service.send("a", "lost", { type: "urn:lock-operator:problem:lock-ended", status: 410, title: "ended", detail: "released by force", retryable: false });
    const reason = await aborted(held.signal);
    assert.ok(reason instanceof LockLostError && reason.message.includes("by force"));
    await held.release();
    assert.deepEqual(service.requests, ["POST hold"]);
  });

  test("that stays away loses the lock at the deadline", async () => {
    await using service = await FakeService.start();
    const held = await clientOf(service).acquire("a", { hold: true, ttlMs: 1500 });
    service.failing = "PUT";
    service.cut("a");
    const reason = await aborted(held.signal);
    assert.ok(reason instanceof LockLostError && reason.cause instanceof LockError);
    assert.ok(performance.now() >= held.deadline);
  });

  test("of an acquisition that is aborted after the grant leaves no lock", async () => {
    await using service = await FakeService.start();
    const stop = new AbortController();
    const acquired = clientOf(service).acquire("a", { hold: true, signal: stop.signal });
    await eventually(() => { if (service.locks.size > 0) stop.abort(new Error("no longer needed")); return stop.signal.aborted; }, "the grant");
    await acquired.then(held => held.release(), (error: Error) => assert.equal(error.message, "no longer needed"));
    await eventually(() => service.locks.size === 0, "the end of the lock");
  });

  test("does not outlive a failed release", async () => {
    await using service = await FakeService.start();
    const client = new LockClient({ url: service.url, namespace: "n", requestTimeoutMs: 3000 });
    const held = await client.acquire("a", { hold: true });
    service.failing = "DELETE";
    await assert.rejects(held.release(), (error: unknown) => error instanceof LockError && error.problem?.status === 503);
    await eventually(() => service.locks.size === 0, "the end of the connection");
  });
});

describe("A façade that holds a lock by a connection", { skip }, () => {
  const client = newClient();

  test("renews it, and ends it with the release", async () => {
    const key = newKey("hold");
    {
      await using held = await client.acquire(key, { hold: true, ttlMs: 6000 });
      const first = held.deadline;
      await assert.rejects(client.acquire(key), LockHeldError);
      await eventually(() => held.deadline > first + 6000, "a renewal after the first deadline");
      assert.equal(held.signal.aborted, false);
    }
    assert.equal(await client.get(key), undefined);
  });

  test("lets the client go on after a stop and after a crash", async () => {
    await using held = await client.acquire(newKey("hold"), { hold: true, ttlMs: 60_000 });
    for (const end of ["stop", "kill"]) {
      const before = held.deadline;
      await control(end);
      await control("start");
      await eventually(() => held.deadline > before, "a renewal by another connection");
    }
    assert.equal(held.signal.aborted, false);
  });

  test("tells that it was released by force", async () => {
    const key = newKey("hold");
    const held = await client.acquire(key, { hold: true, ttlMs: 6000 });
    await client.forceRelease(key, "a test");
    assert.ok(await aborted(held.signal) instanceof LockLostError);
    await held.release();
  });

  test("ends it when the program is killed", async () => {
    const key = newKey("hold");
    const text = `import { newClient } from ${JSON.stringify(new URL("support.js", import.meta.url).href)};
      await newClient().acquire("${key}", { hold: true, ttlMs: 600_000 }); console.log("held"); setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ["--input-type=module", "--eval", text], { stdio: ["ignore", "pipe", "inherit"] });
    await once(child.stdout, "data");
    assert.equal(await isFree(key), false);
    child.kill("SIGKILL");
    await eventually(() => isFree(key), "the end of the lock");
  });

  test("hands it to a program that has waited", async () => {
    const key = newKey("hold");
    await using proxy = await Proxy.start();
    const held = await client.acquire(key, { hold: true });
    const waiting = newClient({ url: proxy.url }).acquire(key, { hold: true, waitMs: 60_000, ttlMs: 5000 });
    await eventually(() => proxy.requests.length >= 2, "a wait");
    await new Promise(resolve => setTimeout(resolve, 1800)); // Longer than a third of the ttl.
    await held.release();
    await using next = await waiting;
    assert.ok(next.fencingToken > held.fencingToken);
    assert.ok(next.deadline > performance.now());
  });

  test("is asked again when its answer is lost", async () => {
    await using proxy = await Proxy.start();
    let cuts = 0;
    proxy.isLost = request => request.startsWith("POST") && cuts++ === 0;
    await using held = await newClient({ url: proxy.url }).acquire(newKey("hold"), { hold: true });
    assert.equal((await client.get(held.key))?.fencingToken, held.fencingToken);
    assert.equal(held.signal.aborted, false);
  });

  test("goes on when the connection is cut", async () => {
    const key = newKey("hold");
    await using proxy = await Proxy.start();
    const held = await newClient({ url: proxy.url }).acquire(key, { hold: true });
    proxy.cut();
    // The end of the connection has ended the lock, unless the next connection came first.
    await eventually(async () => held.signal.aborted || proxy.requests.some(each => each.startsWith("PUT")), "the next connection");
    await held.release().catch((error: unknown) => assert.ok(error instanceof LockLostError));
    assert.equal(await client.get(key), undefined);
  });

  test("no lock is left", async () => {
    await eventually(async () => (await lockObjects()).length === 0, "the end of all locks");
  });
});
