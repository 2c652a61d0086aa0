// The examples of JustScale's page "Distributed Locks" that concern locking, each under the name of its section.

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DoubleLockError, LockError, LockHeldError, LockLostError } from "../src/index.js";
import { EntityLocks, heldOf, locked, lockScope, persist, type Lock, type Persistent, type Transient } from "../src/proof.js";
import { eventually, isFree, lockObjects, newClient, newKey, skip } from "./support.js";

interface User { id: string; name: string; balance: number }

/** Rows of a table. What is read is a copy. */
class Users {
  readonly rows = new Map<string, User>();
  async get(id: string): Promise<Persistent<User> | null> {
    const row = this.rows.get(id);
    return row === undefined ? null : persist({ ...row });
  }
  async save(user: Transient<User> | Persistent<User>): Promise<Persistent<User>> {
    const { id, name, balance } = user;
    this.rows.set(id, { id, name, balance });
    return persist({ id, name, balance });
  }
  async delete(user: Persistent<User>): Promise<void> { this.rows.delete(user.id); }
}

describe("JustScale", { skip }, () => {
  const errors: LockError[] = [];
  const client = newClient({ onReleaseError: error => errors.push(error) });
  const table = new Users();
  const users = locked(table, "save", "delete");
  const locks = new EntityLocks<User>(client, { keyOf: user => user.id, read: user => table.get(user.id) });
  const newUser = async () => await table.save({ id: newKey("user"), name: "Alice", balance: 0 });

  test("Basic Usage", async () => {
    const existing = await newUser();
    {
      using user = await locks.acquire(existing);
      assert.ok(user);
      assert.equal(await isFree(existing.id), false);
    }
    await eventually(() => isFree(existing.id), "the release");
    {
      using user = await locks.acquire(users.get(existing.id), { ttl: 60000, timeout: 10000 });
      if (!user) throw new Error("NotFound");
      assert.equal(user.name, "Alice");
      assert.equal(heldOf(user).ttlMs, 60000);
    }
    using none = await locks.acquire(users.get("nobody"));
    assert.equal(none, null);
  });

  test("Automatic Release", async () => {
    const existing = await newUser();
    { using _user = await locks.acquire(existing); }
    await eventually(() => isFree(existing.id), "the release");
    { await using _user = await locks.acquire(existing); }
    assert.equal(await isFree(existing.id), true);
  });

  test("Requiring Lock Proof", async () => {
    const processRefund = async (user: Lock<Persistent<User>>, amount: number) => {
      user.balance += amount;
      await users.save(user);
    };
    const existing = await newUser();
    {
      await using user = await locks.acquire(users.get(existing.id));
      assert.ok(user);
      await processRefund(user, 100);
    }
    assert.equal((await users.get(existing.id))?.balance, 100);
    // @ts-expect-error A persistent entity alone is no proof.
    const refused: Parameters<typeof processRefund>[0] = existing;
    assert.ok(refused);
  });

  test("Repository Integration", async () => {
    const user = await users.save({ id: newKey("user"), name: "Alice", balance: 1 }); // New entities need no lock.
    const types = () => {
      // @ts-expect-error A persistent entity cannot be saved without its lock.
      void users.save(user);
      // @ts-expect-error Nor deleted.
      void users.delete(user);
      // @ts-expect-error A new one cannot be deleted.
      void users.delete({ id: "a", name: "b", balance: 0 });
      // @ts-expect-error A lock is always of a persistent entity.
      return undefined as unknown as Lock<User>;
    };
    assert.ok(types);
    await using proof = await locks.acquire(user);
    assert.ok(proof);
    proof.name = "Bob";
    await users.save(proof);
    assert.equal((await users.get(user.id))?.name, "Bob");
    await users.delete(proof);
    assert.equal(await users.get(user.id), null);
  });

  test("Lock Is a Fresh Read", async () => {
    const stale = await newUser();
    await table.save({ ...stale, balance: 7 });
    await using user = await locks.acquire(stale);
    assert.equal(stale.balance, 0);
    assert.equal(user?.balance, 7);
  });

  test("Lock Is a Fresh Read: No stale Locked can exist", async () => {
    const existing = await newUser();
    const smuggled = await (async () => { using user = await locks.acquire(existing); return user; })();
    assert.ok(smuggled);
    assert.throws(() => heldOf(smuggled), (error: unknown) => error instanceof LockError && error.code === "released");
    assert.throws(() => users.save(smuggled), LockError);
    const lost = await locks.acquire(existing, { ttl: 3000 });
    assert.ok(lost);
    const held = heldOf(lost);
    await client.forceRelease(existing.id, "a test");
    await assert.rejects(held.renew(), LockLostError);
    assert.throws(() => users.save(lost), LockLostError);
    await lost[Symbol.asyncDispose]();
  });

  test("Lock Is a Fresh Read: an entity that is gone is not locked", async () => {
    const existing = await newUser();
    await table.delete(existing);
    assert.equal(await locks.acquire(existing), null);
    assert.equal(await isFree(existing.id), true);
    const failing = new EntityLocks<User>(client, { keyOf: user => user.id, read: () => { throw new Error("no database"); } });
    await assert.rejects(failing.acquire(existing), /no database/);
    assert.equal(await isFree(existing.id), true);
  });

  test("Lock Options", async () => {
    const existing = await newUser();
    const key = newKey("user");
    await using user = await locks.acquire(existing, { ttl: 60000, timeout: 10000, key });
    assert.ok(user);
    assert.equal(heldOf(user).key, key);
    await assert.rejects(locks.acquire(existing, { timeout: 200, key }), LockHeldError);
  });

  test("Double-Lock Detection", async () => {
    const order = await newUser();
    await lockScope(async () => {
      await using a = await locks.acquire(order);
      assert.ok(a);
      await assert.rejects(locks.acquire(order), (error: unknown) => error instanceof DoubleLockError && error.message.includes(order.id));
      // The fix: pass the lock to the helper.
      const charge = async (held: Lock<Persistent<User>>) => { await users.save(held); };
      await charge(a);
      // A scope within sees what those around it hold, also from a helper that has waited.
      await assert.rejects(lockScope(async () => { await isFree(""); return await locks.acquire(order); }), DoubleLockError);
    });
  });

  test("Double-Lock Detection: after its release a lock can be acquired again", async () => {
    const order = await newUser();
    await lockScope(async () => {
      { using _a = await locks.acquire(order); }
      await using again = await locks.acquire(order);
      assert.ok(again);
    });
  });

  test("Double-Lock Detection: concurrent workers do not see each other", async () => {
    const order = await newUser();
    let inside = 0;
    const worker = () => lockScope(async () => {
      await using user = await locks.acquire(order, { timeout: 60000 });
      assert.ok(user);
      assert.equal(++inside, 1);
      await isFree(order.id);
      inside--;
    });
    await Promise.all([worker(), worker(), worker()]);
    // Nor does what a worker holds reach the program that has called it.
    const first = lockScope(() => locks.acquire(order));
    await using held = await first;
    assert.ok(held);
    await assert.rejects(locks.acquire(order, { timeout: 100 }), LockHeldError);
  });

  test("Double-Lock Detection: two acquisitions at once in one scope", async () => {
    const order = await newUser();
    await lockScope(async () => {
      const results = await Promise.allSettled([locks.acquire(order), locks.acquire(order)]);
      assert.deepEqual(results.map(each => each.status), ["fulfilled", "rejected"]);
      if (results[0]?.status === "fulfilled") await results[0].value?.[Symbol.asyncDispose]();
    });
  });

  test("Why using instead of await using? The release that fails is told", async () => {
    const existing = await newUser();
    {
      using _user = await locks.acquire(existing);
      await client.forceRelease(existing.id, "a test");
    }
    await eventually(() => errors.length === 1, "the error of the release");
    assert.ok(errors.pop() instanceof LockLostError);
  });

  test("Why accept Promise?", async () => {
    const existing = await newUser();
    await using user = await locks.acquire(users.get(existing.id));
    assert.ok(user);
  });

  test("no lock is left", async () => {
    await eventually(async () => (await lockObjects()).length === 0, "the end of all locks");
    assert.deepEqual(errors, []);
  });
});
