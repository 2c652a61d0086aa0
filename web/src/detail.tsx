// All about one lock.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { isAddressable, type Guard, type Problem, type Rights, type Waiter, type Waiters } from "./api";
import { Bar, clockTime, Copy, Data, Dots, duration, hueOf, lockCommand, quoted, shortName, Who } from "./bits";
import { ForceRelease } from "./force";
import { useRights } from "./rights";
import type { LockName } from "./route";
import { idOf, isExpiring, type Ended, type Entry, type Store, type Tenure } from "./store";
import { useWaiters } from "./waiters";

const shownWaiters = 40;
const doors: Record<string, string | undefined> = { rest: "REST", forrst: "Forrst" };

/** One lock. Another one needs another key: nothing of this one may show there. */
export function Detail({ of, store, now, isLive, isFollowed, onClose, onLate }: {
  of: LockName; store: Store; now: number; isLive: boolean;
  /** Whether the store is told of the locks of this namespace. */
  isFollowed: boolean;
  onClose: () => void;
  /** Tells what has come of a forced release that this part of the page cannot show any more. */
  onLate: (told: string) => void;
}) {
  const id = idOf(of);
  const entry = store.entries.get(id);
  const held = entry && !entry.ended ? entry : undefined;
  const past = store.pasts.get(id) ?? [];
  const heading = useRef<HTMLHeadingElement>(null);
  const forcing = useRef<HTMLButtonElement>(null);
  const { rights, problem, askAgain } = useRights(of, isLive);
  const [isForcing, setForcing] = useState(false);
  const [done, setDone] = useState("");
  useEffect(() => heading.current!.focus({ preventScroll: true }), []);
  const wasForcing = useRef(false);
  useLayoutEffect(() => { // As long as the dialog is there, nothing else takes the focus.
    if (wasForcing.current && !isForcing) (done ? heading.current : forcing.current ?? heading.current)?.focus();
    wasForcing.current = isForcing;
  }, [isForcing]);
  const waiters = useWaiters(held, rights);
  // A viewer of this lock alone is not told how many wait, but may read who does.
  const waiting = held?.waiting ?? waiters?.waiters.length;
  const isAtLeast = held?.waiting === undefined && !!waiters?.more;
  return <aside class="detail" aria-label="One lock">
    <header>
      <button type="button" class="close" onClick={onClose} aria-label="Back to all locks"><span aria-hidden="true">×</span></button>
      <h2 ref={heading} tabIndex={-1}><Data>{of.key}</Data></h2>
      <p class="quiet">in <Data>{of.namespace}</Data>{of.function && <> of the function <Data>{of.function}</Data></>}</p>
    </header>
    <div class="body">
      {held ? <HeldState held={held} now={now} />
        : <FreeState ended={entry?.ended} now={now} problem={problem} isKnown={store.isSynced && isFollowed} />}
      {done && <p class="notice" role="status">{done}</p>}
      {held && <Facts entry={held} renewals={past.at(-1)?.renewals ?? 0} now={now} />}
      {held && <Line count={waiting} isAtLeast={isAtLeast} waiters={waiters} now={now} />}
      <Timeline past={past} now={now} since={store.watchedSince} />
      <Commands of={of} isHeld={!!held} />
      {held && <section class="danger" aria-label="Forced release">
        <h3>Take it from its holder</h3>
        <Forcing held={held} rights={rights} button={forcing} onForce={() => { setDone(""); setForcing(true); }} />
      </section>}
      {isForcing && rights && <ForceRelease entry={entry} first={waiters?.waiters[0]} waiting={waiting} isAtLeast={isAtLeast} isLive={isLive} rights={rights}
        onClose={told => { setForcing(false); setDone(told); }} onForbidden={askAgain} onLate={onLate} />}
    </div>
  </aside>;
}

function HeldState({ held, now }: { held: Entry; now: number }) {
  const isSoon = isExpiring(held, now);
  return <section class={"state " + (isSoon ? "soon" : "held")} aria-label="State">
    <div class="big">
      <span class="pill">{isSoon ? "Expiring" : "Held"}</span><strong>{duration(held.expires - now)}</strong><span class="quiet">left</span>
    </div>
    <Bar entry={held} now={now} />
  </section>;
}

function FreeState({ ended, now, problem, isKnown }: { ended?: Ended; now: number; problem?: Problem; isKnown: boolean }) {
  const isFree = ended || isKnown;
  return <section class={"state" + (isFree ? " free" : "")} aria-label="State">
    <div class="big"><span class="pill">{isFree ? "Free" : "Not known"}</span><span class="quiet">{whyFree(isKnown, now, ended, problem)}</span></div>
  </section>;
}

function whyFree(isKnown: boolean, now: number, ended?: Ended, problem?: Problem) {
  if (ended?.isUnseen) return "ended while the page was not connected";
  if (ended?.toldAt !== undefined) return `${ended.how} ${duration(Math.max(0, now - ended.toldAt))} ago`;
  if (ended) return ended.how + " just now";
  if (isKnown) return "No caller holds this lock.";
  return problem ? <Data>{problem.detail}</Data> : "…";
}

function Commands({ of, isHeld }: { of: LockName; isHeld: boolean }) {
  const selector = "spec.key=" + of.key.replace(/[\\,=]/g, "\\$&");
  return <section class="commands" aria-label="Commands">
    <h3>In a terminal</h3>
    {of.function ? <Copy text={`kubectl get locks -n ${quoted(of.namespace)} --field-selector ${quoted(selector)}`} /> : <>
      <Copy text={lockCommand("who", of)} />
      {isHeld && <Copy text={lockCommand("free", of, "--dry-run")} />}
    </>}
  </section>;
}

/** The button of a forced release, or why there is none. */
function Forcing({ held, rights, button, onForce }: { held: Entry; rights?: Rights; button: { current: HTMLButtonElement | null }; onForce: () => void }) {
  if (!rights) return <p class="quiet">…</p>;
  if (!rights.verbs.includes("force-release")) {
    return <p class="quiet">You may not: it takes the verb <code>force-release</code> on <code>locks.forrst.dev</code> in <Data>{held.lock.namespace}</Data>.</p>;
  }
  if (!isAddressable(held.lock)) return <p class="quiet">A browser cannot send a request about this key, which it takes for a step in the path. Use the commands.</p>;
  const isEnding = held.lock.fencing_token === undefined;
  return <>
    <button ref={button} type="button" class="force" disabled={isEnding} onClick={onForce}>Release by force…</button>
    {isEnding && <p class="quiet">The lock is being deleted already.</p>}
  </>;
}

function guardText({ group, resource, name, selector }: Guard): string {
  const what = resource + (group ? "." + group : "");
  if (name) return what + "/" + name;
  return selector ? `${what} with ${selector}` : `all ${what}`;
}

function Facts({ entry, renewals, now }: { entry: Entry; renewals: number; now: number }) {
  const { lock } = entry;
  const ref = lock.holder_ref;
  return <dl class="facts">
    <dt>Holder</dt><dd><i class={"mark hue" + hueOf(lock.holder)} aria-hidden="true" /><Who user={lock.holder} /></dd>
    {ref && <><dt>Stands for</dt><dd>{ref.kind} <Data>{ref.name}</Data><small class="quiet">The lock ends with it.</small></dd></>}
    {lock.reason && <><dt>Reason</dt><dd><Data>{lock.reason}</Data></dd></>}
    <dt>Since</dt><dd>{clockTime(entry.acquired)} <span class="quiet">for {duration(now - entry.acquired, false)}</span></dd>
    <dt>Renewed</dt><dd>{entry.renewed === entry.acquired ? "not yet" : <>{duration(now - entry.renewed, false)} ago</>}
      {renewals > 0 && <span class="quiet"> {renewals}× while this page watched</span>}</dd>
    <dt>Expires</dt><dd>{clockTime(entry.expires)}
      {lock.ttl_seconds !== undefined && <span class="quiet"> a renewal gives it {duration(lock.ttl_seconds * 1000, false)}</span>}</dd>
    {lock.fencing_token !== undefined && <><dt>Fencing token</dt><dd class="number">{lock.fencing_token}</dd></>}
    {!!lock.guards?.length && <><dt>Guards</dt>
      <dd><ul>{lock.guards.map((guard, index) => <li key={index}><Data>{guardText(guard)}</Data></li>)}</ul></dd></>}
  </dl>;
}

function Line({ count, isAtLeast, waiters: told, now }: { count?: number; isAtLeast: boolean; waiters?: Waiters; now: number }) {
  const waiters = told?.waiters, shown = waiters?.slice(0, shownWaiters);
  const areMore = !!waiters && (told.more || waiters.length > shown!.length);
  return <section class="waiters" aria-label="The line">
    <h3>The line {!!count && <span class="count">{count}{isAtLeast && "+"}</span>}</h3>
    {!count && <p class="quiet">{count === undefined ? "It is not known who waits." : "No one waits."}</p>}
    {!!count && !waiters && <Dots count={count} most={14} />}
    {!!count && shown && <ol>{shown.map(each => <InLine key={each.place} waiter={each} now={now} />)}</ol>}
    {!!count && areMore && <p class="quiet">… and {others(count - shown!.length, isAtLeast)} behind them.</p>}
  </section>;
}

/** How many more wait than are shown. */
function others(count: number, isAtLeast: boolean): string {
  if (count <= 0) return "more";
  return (isAtLeast ? "at least " : "") + count;
}

function InLine({ waiter, now }: { waiter: Waiter; now: number }) {
  const { place, holder, holder_ref, reason, door, priority, since, until } = waiter;
  const about = [holder_ref && holder_ref.kind + " " + holder_ref.name, reason, door && "through " + (doors[door] ?? door),
    !!priority && "priority " + priority];
  return <li>
    <b class={place === 1 ? "next" : ""}>{place}</b>
    <span class="who"><Who user={holder} /><small class="quiet"><Data>{about.filter(Boolean).join(" · ")}</Data></small></span>
    <span class="quiet since">{duration(now - Date.parse(since), false)}
      {until && <small>leaves in {duration(Date.parse(until) - now, false)}</small>}</span>
  </li>;
}

function Timeline({ past, now, since }: { past: Tenure[]; now: number; since: number }) {
  if (!past.length) return null;
  const begin = past[0]!.from;
  const span = Math.max(1, now - begin);
  const recent = past.slice(-8).reverse();
  return <section class="timeline" aria-label="Last holders">
    <h3>Last holders</h3>
    <svg viewBox="0 0 1000 26" preserveAspectRatio="none" aria-hidden="true">
      <rect class="track" width="1000" height="26" rx="4" />
      {past.map(each => <rect key={each.from} class={"hue" + hueOf(each.holder) + (each.how === "expired" ? " expired" : "")}
        x={(each.from - begin) / span * 1000} y="3" height="20" width={Math.max(2, ((each.to ?? now) - each.from) / span * 1000 - 1.5)} />)}
    </svg>
    <div class="ends quiet"><span>{clockTime(begin)}</span><span>now</span></div>
    <ol>{recent.map(each => <li key={each.from}>
      <i class={"mark hue" + hueOf(each.holder)} aria-hidden="true" />
      <span class="who"><Data title={each.holder}>{shortName(each.holder)}</Data>{each.ref && <small class="quiet"><Data>{each.ref}</Data></small>}
        <small class="quiet">{clockTime(each.from)}</small></span>
      <span class={"how " + (each.how ?? "present")}>{howEnded(each)}</span>
    </li>)}</ol>
    <p class="quiet small">As seen since {clockTime(since)}.</p>
  </section>;
}

function howEnded({ from, to, how, isUnseen }: Tenure): string {
  if (to === undefined) return "holds it";
  return isUnseen ? "ended while the page was not connected" : `${how} after ${duration(to - from)}`;
}
