// All about one lock.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { readRights, type Guard, type Rights, type Waiter } from "./api";
import { Bar, clockTime, Copy, Data, Dots, duration, hueOf, lockCommand, quoted, shortName, Who } from "./bits";
import { ForceRelease } from "./force";
import type { LockName } from "./route";
import { idOf, isExpiring, type Entry, type Store, type Tenure } from "./store";
import { useWaiters } from "./waiters";

const shownWaiters = 40;
const doors: Record<string, string | undefined> = { rest: "REST", forrst: "Forrst" };

export function Detail({ of, store, now, isLive, onClose }: { of: LockName; store: Store; now: number; isLive: boolean; onClose: () => void }) {
  const id = idOf(of);
  const entry = store.entries.get(id);
  const held = entry && !entry.ended ? entry : undefined;
  const past = store.pasts.get(id) ?? [];
  const heading = useRef<HTMLHeadingElement>(null);
  const forcing = useRef<HTMLButtonElement>(null);
  const [rights, setRights] = useState<Rights>();
  const [isForcing, setForcing] = useState(false);
  const [done, setDone] = useState("");
  useEffect(() => {
    heading.current!.focus({ preventScroll: true });
    setForcing(false);
    setDone("");
    setRights(undefined);
    let isCurrent = true;
    readRights(of.namespace, of).then(read => isCurrent && setRights(read), () => undefined);
    return () => { isCurrent = false; };
  }, [id]);
  const wasForcing = useRef(false);
  useLayoutEffect(() => { // As long as the dialog is there, nothing else takes the focus.
    if (wasForcing.current && !isForcing) (done ? heading.current : forcing.current ?? heading.current)?.focus();
    wasForcing.current = isForcing;
  }, [isForcing]);
  const waiters = useWaiters(held, rights?.verbs.includes("get") ?? false);
  // A viewer of this lock alone is not told how many wait, but may read who does.
  const waiting = held?.waiting ?? waiters?.length;
  const mayForce = rights?.verbs.includes("force-release");
  return <aside class="detail" aria-label="One lock">
    <header>
      <button type="button" class="close" onClick={onClose} aria-label="Back to all locks"><span aria-hidden="true">×</span></button>
      <h2 ref={heading} tabIndex={-1}><Data>{of.key}</Data></h2>
      <p class="quiet">in <Data>{of.namespace}</Data>{of.function && <> of the function <Data>{of.function}</Data></>}</p>
    </header>
    <div class="body">
      <section class={"state " + (held ? isExpiring(held, now) ? "soon" : "held" : "free")} aria-label="State">
        {held ? <>
          <div class="big"><span class="pill">{isExpiring(held, now) ? "Expiring" : "Held"}</span><strong>{duration(held.expires - now)}</strong><span class="quiet">left</span></div>
          <Bar entry={held} now={now} />
        </> : <div class="big"><span class="pill">Free</span><span class="quiet">{entry?.ended ? entry.ended.how + " just now" : store.isSynced ? "No caller holds this lock." : "…"}</span></div>}
      </section>
      {done && <p class="notice" role="status">{done}</p>}
      {held && <Facts entry={held} renewals={past.at(-1)?.renewals ?? 0} now={now} />}
      {held && <Line count={waiting} waiters={waiters} now={now} />}
      <Timeline past={past} now={now} since={store.watchedSince} />
      <section class="commands" aria-label="Commands">
        <h3>In a terminal</h3>
        {of.function ? <Copy text={`kubectl get locks -n ${quoted(of.namespace)} --field-selector ${quoted("spec.key=" + of.key.replace(/[\\,=]/g, "\\$&"))}`} /> : <>
          <Copy text={lockCommand("who", of)} />
          {held && <Copy text={lockCommand("free", of, "--dry-run")} />}
        </>}
      </section>
      {held && <section class="danger" aria-label="Forced release">
        <h3>Take it from its holder</h3>
        {mayForce ? <button ref={forcing} type="button" class="force" onClick={() => { setDone(""); setForcing(true); }}>Release by force…</button>
          : <p class="quiet">{rights ? <>You may not: it takes the verb <code>force-release</code> on <code>locks.forrst.dev</code> in <Data>{of.namespace}</Data>.</> : "…"}</p>}
      </section>}
      {isForcing && rights && <ForceRelease entry={entry} first={waiters?.[0]} waiting={waiting} isLive={isLive} rights={rights}
        onClose={told => { setForcing(false); setDone(told); }} />}
    </div>
  </aside>;
}

function guardText(guard: Guard): string {
  const resource = guard.resource + (guard.group ? "." + guard.group : "");
  return guard.name ? resource + "/" + guard.name : guard.selector ? `${resource} with ${guard.selector}` : `all ${resource}`;
}

function Facts({ entry, renewals, now }: { entry: Entry; renewals: number; now: number }) {
  const { lock } = entry;
  return <dl class="facts">
    <dt>Holder</dt><dd><i class={"mark hue" + hueOf(lock.holder)} aria-hidden="true" /><Who user={lock.holder} /></dd>
    {lock.holder_ref && <><dt>Stands for</dt><dd>{lock.holder_ref.kind} <Data>{lock.holder_ref.name}</Data><small class="quiet">The lock ends with it.</small></dd></>}
    {lock.reason && <><dt>Reason</dt><dd><Data>{lock.reason}</Data></dd></>}
    <dt>Since</dt><dd>{clockTime(entry.acquired, now)} <span class="quiet">for {duration(now - entry.acquired, false)}</span></dd>
    <dt>Renewed</dt><dd>{entry.renewed === entry.acquired ? "not yet" : <>{duration(now - entry.renewed, false)} ago</>}
      {renewals > 0 && <span class="quiet"> {renewals}× while this page watched</span>}</dd>
    <dt>Expires</dt><dd>{clockTime(entry.expires, now)} {lock.ttl_seconds !== undefined && <span class="quiet">a renewal gives it {duration(lock.ttl_seconds * 1000, false)}</span>}</dd>
    {lock.fencing_token !== undefined && <><dt>Fencing token</dt><dd class="number">{lock.fencing_token}</dd></>}
    {!!lock.guards?.length && <><dt>Guards</dt><dd><ul>{lock.guards.map((guard, index) => <li key={index}><Data>{guardText(guard)}</Data></li>)}</ul></dd></>}
  </dl>;
}

function Line({ count, waiters, now }: { count?: number; waiters?: Waiter[]; now: number }) {
  return <section class="waiters" aria-label="The line">
    <h3>The line {!!count && <span class="count">{count}</span>}</h3>
    {count === undefined ? <p class="quiet">It is not known who waits.</p> : count === 0 ? <p class="quiet">No one waits.</p> : <>{!waiters && <Dots count={count} most={14} />}
      {waiters && <ol>{waiters.slice(0, shownWaiters).map(each => <li key={each.place}>
        <b class={each.place === 1 ? "next" : ""}>{each.place}</b>
        <span class="who"><Who user={each.holder} />
          <small class="quiet"><Data>{[each.holder_ref && each.holder_ref.kind + " " + each.holder_ref.name, each.reason, each.door && "through " + (doors[each.door] ?? each.door)].filter(Boolean).join(" · ")}</Data></small></span>
        <span class="quiet since">{duration(now - Date.parse(each.since), false)}{each.until && <small>leaves in {duration(Date.parse(each.until) - now, false)}</small>}</span>
      </li>)}</ol>}
      {count > shownWaiters && <p class="quiet">… and {count - shownWaiters} behind them.</p>}</>}
  </section>;
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
    <div class="ends quiet"><span>{clockTime(begin, now)}</span><span>now</span></div>
    <ol>{recent.map(each => <li key={each.from}>
      <i class={"mark hue" + hueOf(each.holder)} aria-hidden="true" />
      <span class="who"><Data title={each.holder}>{shortName(each.holder)}</Data>{each.ref && <small class="quiet"><Data>{each.ref}</Data></small>}</span>
      <span class="quiet">{clockTime(each.from, now)}</span>
      <span class={"how " + (each.how ?? "present")}>{each.to === undefined ? "holds it" : `${each.how} after ${duration(each.to - each.from)}`}</span>
    </li>)}</ol>
    <p class="quiet small">As seen since {clockTime(since, now)}.</p>
  </section>;
}
