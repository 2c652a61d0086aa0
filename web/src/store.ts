// What the page knows. Events change it as they come; what is on the screen follows once a frame.

import type { Line, Lock, Past, PastGrant } from "./api";
import type { LockName, Route } from "./route";

/** The end of a lock. What ended while the page was not connected, it has not seen, but the service may tell when that was. */
export interface Ended { how: string; at: number; isUnseen?: boolean; toldAt?: number }
export interface Entry {
  id: string; lock: Lock; acquired: number; renewed: number; expires: number;
  /** How many wait; undefined as long as that is not known. */
  waiting?: number;
  /** Lower case, for the search. */
  text: string;
  /** Set for a moment after the end, so that it can be seen. */
  ended?: Ended;
}
/** One holder in the past of a lock, as far as this page has seen it or was told. */
export interface Tenure { holder: string; ref: string; token?: number; from: number; to?: number; how?: string; isUnseen?: boolean; renewals: number }
export interface Happened { number: number; at: number; event: string; lock: Lock }

interface Change { event: string; lock: Lock }

/** For how long the end of a lock is shown. */
const shownFor = 2500;
const keptTenures = 24;
const keptHappened = 60;
/** So many past locks keep their timeline. */
const keptPasts = 20_000;
const seconds = 60;

export function idOf(of: LockName): string { return of.namespace + "\0" + of.key + "\0" + (of.function ?? ""); }

export class Store {
  readonly entries = new Map<string, Entry>();
  readonly pasts = new Map<string, Tenure[]>();
  happened: Happened[] = [];
  /** Changes in each of the last seconds, the present one last. */
  readonly rates: number[] = Array(seconds).fill(0);
  waiting = 0;
  linesComplete = true;
  /** Since when this page has seen everything or was told, or 0. */
  watchedSince = 0;
  isSynced = false;

  /** Since when the page is told nothing. */
  private awaySince?: number;
  private offset = Date.now() - performance.now();
  private second = 0;
  private hasLines = false;
  private lines = new Map<string, number>();
  private happenings = 0;
  private isStale = true;
  private viewed: Entry[] = [];
  private viewedAt = 0;
  private viewedRoute = "";
  private frame = 0;

  constructor(private readonly changed: () => void) {
    setInterval(() => this.tick(), 100);
  }

  /** The time of the service, in milliseconds since 1970. It does not follow the clock of the browser's machine, which may be wrong, or set while the page is open. */
  now(): number { return performance.now() + this.offset; }

  clear(): void {
    this.entries.clear();
    this.pasts.clear();
    this.lines.clear();
    this.hasLines = false;
    this.happened = [];
    this.waiting = 0;
    this.isSynced = false;
    this.awaySince = undefined;
    this.watchedSince = 0;
    this.redraw(true);
  }

  /** Draws in the next frame, however often it is called. */
  redraw(isStale = false): void {
    this.isStale ||= isStale;
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.changed();
    });
  }

  /** Notes that the connection is lost. */
  lose(): void {
    if (this.isSynced) this.awaySince ??= this.now();
  }

  sync(locks: Lock[], now?: string): void {
    if (now) this.offset = Date.parse(now) - performance.now();
    const missing = new Set(this.entries.keys());
    for (const lock of locks) {
      missing.delete(idOf(lock));
      this.put(lock);
    }
    for (const id of missing) if (!this.entries.get(id)!.ended) this.end(id, "ended");
    if (!this.isSynced) this.note(locks.map(lock => ({ at: Date.parse(lock.acquired_at), event: "acquired", lock })));
    this.isSynced = true;
    this.awaySince = undefined;
    this.watchedSince ||= this.now();
    this.redraw(true);
  }

  /** Takes in what had ended before this page could see it. */
  recall({ since, grants }: Past): void {
    for (const each of grants) this.remember(each);
    // The lock of a grant that was handed off names its former holder.
    this.note(grants.filter(each => each.event !== "handed-off").map(({ event, ended_at, lock }) => ({ at: Date.parse(ended_at), event, lock })));
    this.watchedSince = Math.min(this.watchedSince || Infinity, Date.parse(since));
    this.redraw();
  }

  /** Keeps what has happened last. The service may tell it more than once. */
  private note(told: Omit<Happened, "number">[]): void {
    const known = new Set(this.happened.map(nameOf));
    for (const each of told) if (!known.has(nameOf(each))) this.happened.push({ ...each, number: this.happenings++ });
    this.happened = this.happened.sort((a, b) => a.at - b.at).slice(-keptHappened);
  }

  apply(changes: Change[], now?: string): void {
    // The event that came fastest tells the clocks' difference best.
    if (now) this.offset = Math.max(this.offset, Date.parse(now) - performance.now());
    for (const each of changes) {
      switch (each.event) {
        case "released":
        case "expired":
          // The lock as it was last: another grant that has begun meanwhile goes on.
          if (this.entries.get(idOf(each.lock))?.lock.acquired_at === each.lock.acquired_at) this.end(idOf(each.lock), each.event);
          break;
        default:
          this.put(each.lock, each.event);
      }
      this.rates[seconds - 1]!++;
    }
    const at = now ? Date.parse(now) : this.now();
    this.note(changes.filter(each => each.event !== "renewed" && each.event !== "changed").map(each => ({ ...each, at })));
    this.redraw(true);
  }

  setLines(lines: Line[], isComplete: boolean): void {
    this.lines.clear();
    this.waiting = 0;
    this.linesComplete = isComplete;
    for (const each of lines) {
      this.lines.set(idOf(each), each.waiting);
      this.waiting += each.waiting;
    }
    this.hasLines = true;
    for (const entry of this.entries.values()) entry.waiting = this.waitingFor(entry.id);
    this.redraw(true);
  }

  private waitingFor(id: string): number | undefined {
    return this.lines.get(id) ?? (this.hasLines && this.linesComplete ? 0 : undefined);
  }

  private put(lock: Lock, event?: string): void {
    const id = idOf(lock);
    const former = this.entries.get(id);
    const entry: Entry = {
      id, lock, acquired: Date.parse(lock.acquired_at), renewed: Date.parse(lock.renewed_at), expires: Date.parse(lock.expires_at),
      waiting: this.waitingFor(id),
      text: [lock.namespace, lock.key, lock.function, lock.holder, lock.reason, lock.holder_ref?.name].join("\n").toLowerCase(),
    };
    this.entries.set(id, entry);
    let past = this.pasts.get(id);
    if (!past) this.pasts.set(id, past = []);
    const last = past.at(-1);
    if (last && last.from === entry.acquired) {
      if (former && former.lock.renewed_at !== lock.renewed_at) last.renewals++;
      delete last.to;
      delete last.how;
      delete last.isUnseen;
      return;
    }
    if (last && last.to === undefined) {
      last.to = entry.acquired;
      last.how = event === "handed-off" ? "handed off" : "ended";
      last.isUnseen = this.awaySince !== undefined;
    }
    past.push({ holder: lock.holder, ref: refOf(lock), token: lock.fencing_token, from: entry.acquired, renewals: 0 });
    if (past.length > keptTenures) past.shift();
  }

  private remember({ event, ended_at, lock }: PastGrant): void {
    const id = idOf(lock), from = Date.parse(lock.acquired_at);
    const entry = this.entries.get(id);
    if (entry && !entry.ended && entry.acquired === from) return; // Its renewal came late: it goes on.
    const ended = { to: Date.parse(ended_at), how: event === "handed-off" ? "handed off" : event, isUnseen: false };
    if (entry?.ended && entry.acquired === from) Object.assign(entry.ended, { how: ended.how, isUnseen: false, toldAt: ended.to });
    const past = this.pasts.get(id) ?? [];
    this.pasts.set(id, past);
    const known = past.find(each => each.from === from);
    if (known) {
      Object.assign(known, ended);
      return;
    }
    const later = past.findIndex(each => each.from > from);
    past.splice(later < 0 ? past.length : later, 0, { holder: lock.holder, ref: refOf(lock), token: lock.fencing_token, from, renewals: 0, ...ended });
    if (past.length > keptTenures) past.shift();
  }

  private end(id: string, how: string): void {
    const entry = this.entries.get(id);
    if (!entry) return;
    // What time has ended, this page has seen by itself a moment before.
    entry.ended ??= { how, at: how === "expired" ? Math.min(entry.expires, this.now()) : this.now(), isUnseen: this.awaySince !== undefined };
    const last = this.pasts.get(id)?.at(-1);
    if (last && last.to === undefined) {
      last.to = this.awaySince ?? entry.ended.at;
      last.how = how;
      last.isUnseen = entry.ended.isUnseen;
    }
  }

  private tick(): void {
    const now = this.now();
    const second = Math.floor(now / 1000);
    if (second !== this.second) {
      for (let past = this.second; past < second && past - this.second < seconds && this.second; past++) {
        this.rates.shift();
        this.rates.push(0);
      }
      this.second = second;
      if (this.pasts.size > keptPasts) {
        for (const id of this.pasts.keys()) {
          if (this.pasts.size <= keptPasts / 2) break;
          if (!this.entries.has(id)) this.pasts.delete(id);
        }
      }
    }
    let isStale = false;
    for (const entry of this.entries.values()) {
      if (!entry.ended && entry.expires <= now) {
        this.end(entry.id, "expired");
        isStale = true;
      } else if (entry.ended && now - entry.ended.at > shownFor) {
        this.entries.delete(entry.id);
        isStale = true;
      }
    }
    this.redraw(isStale);
  }

  /** The locks that a route shows, in its order. */
  view(route: Route): Entry[] {
    const wanted = JSON.stringify([route.namespace, route.search, route.holder, route.contended, route.expiring, route.sort]);
    const pause = this.entries.size > 2000 ? 300 : 0;
    const now = performance.now();
    if (wanted === this.viewedRoute && (!this.isStale && !route.expiring || now - this.viewedAt < pause)) return this.viewed;
    this.isStale = false;
    this.viewedAt = now;
    this.viewedRoute = wanted;
    const time = this.now();
    const search = route.search.toLowerCase(), holder = route.holder.toLowerCase();
    const found: Entry[] = [];
    for (const entry of this.entries.values()) {
      if (route.namespace && entry.lock.namespace !== route.namespace) continue;
      if (search && !entry.text.includes(search)) continue;
      if (holder && !entry.lock.holder.toLowerCase().includes(holder)) continue;
      if (route.contended && !entry.waiting) continue;
      if (route.expiring && !isExpiring(entry, time)) continue;
      found.push(entry);
    }
    return this.viewed = found.sort(orders[route.sort]);
  }
}

function nameOf({ event, lock }: Change): string { return event + "\0" + lock.acquired_at + "\0" + idOf(lock); }

function refOf(lock: Lock): string { return lock.holder_ref ? lock.holder_ref.kind + " " + lock.holder_ref.name : ""; }

function byKey(a: Entry, b: Entry): number {
  if (a.lock.key !== b.lock.key) return a.lock.key < b.lock.key ? -1 : 1;
  return a.id < b.id ? -1 : 1;
}
const orders: Record<Route["sort"], (a: Entry, b: Entry) => number> = {
  key: byKey,
  expiry: (a, b) => a.expires - b.expires || byKey(a, b),
  waiting: (a, b) => (b.waiting ?? 0) - (a.waiting ?? 0) || byKey(a, b),
  since: (a, b) => a.acquired - b.acquired || byKey(a, b),
};

/** Whether a fifth of the time or less is left: a holder that renews has done so by then. */
export function isExpiring(entry: Entry, now: number): boolean {
  return !entry.ended && entry.expires - now <= (entry.expires - entry.renewed) / 5;
}
