// Who waits for the lock that is looked at.

import { useEffect, useRef, useState } from "preact/hooks";
import { isAddressable, readWaiters, Refusal, type Rights, type Waiters } from "./api";
import type { Entry } from "./store";

/** How long to wait before who waits is read again, in milliseconds. Many viewers may look at the same lock. */
const pauses = {
  /** After a change, at random so that not all viewers ask at once; and between two readings of a line that moves. */
  spread: 400, moving: 2000,
  /** Without a change, which tells who has come for one that left; and where no one tells of changes. */
  still: 10_000, untold: 3000,
};

/** A reading of a line: what the feed told last, the grant that it was about, when the last request began, and when the next one is due. */
function fresh() {
  return { told: "", grant: "", at: -Infinity, due: -Infinity, isRefused: false, ended: undefined as AbortController | undefined };
}

/** Who waits for a lock, read again when the feed tells of another holder or count. Nothing is read while no one looks: a page that is hidden is not drawn. */
export function useWaiters(entry: Entry | undefined, rights: Rights | undefined): Waiters | undefined {
  const [told, setTold] = useState<Waiters>();
  const reading = useRef(fresh());
  const mayRead = rights?.verbs.includes("get") && entry && isAddressable(entry.lock);
  const isLine = !!mayRead && entry.waiting !== 0;
  useEffect(() => {
    reading.current = fresh();
    setTold(undefined);
    return () => reading.current.ended?.abort();
  }, [entry?.id, isLine]);
  useEffect(() => { reading.current.isRefused = false; }, [rights]); // They were read again.
  useEffect(() => { // With each drawing, ten times a second.
    const present = reading.current, now = performance.now();
    if (!isLine || present.isRefused) return;
    const { lock, waiting } = entry;
    const state = lock.acquired_at + " " + waiting;
    if (present.told && state !== present.told) present.due = Math.min(present.due, Math.max(now + Math.random() * pauses.spread, present.at + pauses.moving));
    if (present.grant && present.grant !== lock.acquired_at) setTold(former => former?.waiters[0]?.holder === lock.holder
      ? { ...former, waiters: former.waiters.slice(1).map(each => ({ ...each, place: each.place - 1 })) } : former);
    present.told = state;
    present.grant = lock.acquired_at;
    if (present.ended || now < present.due) return;
    const ended = present.ended = new AbortController();
    present.at = now;
    present.due = now + (waiting === undefined ? pauses.untold : pauses.still);
    readWaiters(lock, AbortSignal.any([ended.signal, AbortSignal.timeout(10_000)]))
      .then(read => { if (!ended.signal.aborted) setTold(read); }, problem => {
        present.isRefused = problem instanceof Refusal && problem.status === 403;
        present.due = Math.min(present.due, now + pauses.untold);
      })
      .finally(() => { present.ended = undefined; });
  });
  return told;
}
