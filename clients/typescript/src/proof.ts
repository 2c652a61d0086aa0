// Proofs: a function that demands a Lock<Persistent<User>> cannot be called without the lock.
import { AsyncLocalStorage } from "node:async_hooks";
import { DoubleLockError, LockError } from "./errors.js";
import type { AcquireOptions, LockClient } from "./client.js";
import type { Held } from "./held.js";

declare const persistent: unique symbol;
declare const proof: unique symbol;

/** An entity that exists outside of this process. Repositories return it. */
export type Persistent<T> = T & { readonly [persistent]: true };
/** An entity that is new, and needs no lock. */
export type Transient<T> = T & { readonly [persistent]?: never };
/** An entity that was read under its lock, which ends with the scope of `using`. */
export type Lock<T extends Persistent<unknown>> = T & Disposable & AsyncDisposable & { readonly [proof]: true };

/** Marks what a repository has read. It does nothing at run time. */
export const persist = <T>(entity: T): Persistent<T> => entity as Persistent<T>;
const proofs = new WeakMap<object, Held>();
/** The entities that have been locked at any time. */
const proven = new WeakSet<object>();

/** Returns the lock behind a proof, such as for its fencing token, or throws if the lock has been released or lost. */
export function heldOf(entity: Lock<Persistent<unknown>>): Held {
  const held = proofs.get(entity as object);
  if (held === undefined) throw new LockError("The lock of this entity is released", "released");
  held.signal.throwIfAborted();
  return held;
}

type Proven<E> = E extends Persistent<unknown> ? Lock<E> : E;
type Demanding<R, M extends keyof R> = {
  [K in keyof R]: K extends M ? R[K] extends (entity: infer E, ...rest: infer A) => infer Out ? (entity: Proven<E>, ...rest: A) => Out : never : R[K];
};

/**
 * Returns the repository with methods whose first argument, if it is a persistent entity, has to be locked: `locked(users,
 * "save", "delete")`. They throw if that lock has been released or lost. An entity that is new needs no lock.
 */
export function locked<R extends object, M extends keyof R>(repository: R, ...methods: M[]): Demanding<R, M> {
  return new Proxy(repository, {
    get(target, name) {
      const value = Reflect.get(target, name, target) as unknown;
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        if (methods.includes(name as M) && proven.has(args[0] as object)) heldOf(args[0] as Lock<Persistent<unknown>>);
        return Reflect.apply(value, target, args) as unknown;
      };
    },
  }) as Demanding<R, M>;
}

export interface EntityLocksOptions<T> extends Pick<EntityOptions, "ttl" | "timeout"> {
  /** The key of the lock of an entity. */
  keyOf: (entity: T) => string;
  /** Reads the entity anew, under its lock. Nothing means that it does not exist any more. */
  read: (entity: T, held: Held) => Promise<T | null | undefined> | T | null | undefined;
}

export interface EntityOptions extends Pick<AcquireOptions, "signal" | "reason" | "priority" | "hold"> {
  /** How long the lock outlasts this process, in milliseconds: 30,000 by default. It is renewed for as long as it is held. */
  ttl?: number;
  /** How long to wait for another holder, in milliseconds: 5,000 by default. */
  timeout?: number;
  /** In place of the one that is derived from the entity. */
  key?: string;
}

/** The keys that a scope holds or is about to acquire, and the scope around it. */
interface Scope { keys: Set<string>; parent: Scope | undefined }
const scopes = new AsyncLocalStorage<Scope>();

/**
 * Calls the function in a scope of its own, such as once for each request. To acquire a lock that its scope, or one around that,
 * holds already is a DoubleLockError. Scopes beside each other do not see each other. Outside of a scope nothing is tracked: what an
 * acquisition set there would reach the callers of its caller, and others that they call.
 */
export const lockScope = <R>(fn: () => R): R => scopes.run({ keys: new Set(), parent: scopes.getStore() }, fn);

/** Locks entities of one kind, and reads them under their locks. */
export class EntityLocks<T extends object> {
  constructor(readonly client: LockClient, readonly options: EntityLocksOptions<T>) {}

  /**
   * Locks the entity, reads it anew and returns what was read, as a proof: `using user = await locks.acquire(users.get(id))`. Of the
   * entity that is given, only the key counts. `using` releases in the background, and an error goes to onReleaseError of the client;
   * `await using` waits and throws it. The result is null, and nothing is locked, if there is no entity, or none any more.
   */
  async acquire(given: T | Persistent<T> | Promise<T | Persistent<T> | null | undefined>, options: EntityOptions = {}): Promise<Lock<Persistent<T>> | null> {
    const scope = scopes.getStore();
    const entity = await given;
    if (entity === null || entity === undefined) return null;
    const { key = this.options.keyOf(entity), ttl = this.options.ttl ?? 30_000, timeout = this.options.timeout ?? 5000, ...others } = options;
    const id = `${this.client.namespace}/${key}`;
    for (let each = scope; each !== undefined; each = each.parent) if (each.keys.has(id)) throw new DoubleLockError(key);
    scope?.keys.add(id);
    let proof: Lock<Persistent<T>> | undefined;
    let held: Held | undefined;
    try {
      held = await this.client.acquire(key, { ...others, ttlMs: ttl, waitMs: timeout });
      const fresh = await this.options.read(entity, held);
      if (fresh === null || fresh === undefined) return null;
      return proof = this.#prove(fresh, held, () => scope?.keys.delete(id));
    } finally {
      if (proof === undefined) {
        scope?.keys.delete(id);
        await held?.release().catch(this.client.onReleaseError);
      }
    }
  }

  #prove(entity: T, held: Held, onRelease: () => void): Lock<Persistent<T>> {
    const release = async () => {
      if (proofs.get(entity) === held && proofs.delete(entity)) onRelease();
      await held.release();
    };
    proofs.set(entity, held);
    proven.add(entity);
    return Object.defineProperties(entity, {
      [Symbol.dispose]: { configurable: true, value: () => { release().catch(this.client.onReleaseError); } },
      [Symbol.asyncDispose]: { configurable: true, value: release },
    }) as Lock<Persistent<T>>;
  }
}
