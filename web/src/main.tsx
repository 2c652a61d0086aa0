// The page: who views it, what it follows, and its parts.

import { render } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import {
  follow, foreign, hasToken, isAddressable, isToken, lockPath, mayPass, pauseAfter, readRights, Refusal, useToken,
  type Line, type Lock, type Past, type Problem, type Rights,
} from "./api";
import { clockTime, Data, duration, Spark, Who } from "./bits";
import { Detail } from "./detail";
import { List } from "./list";
import { go, hashOf, readRoute, type Route, type Sort } from "./route";
import { idOf, isExpiring, Store } from "./store";

/** The connection. That which is lost is tried again at a time, in milliseconds of this tab; why is what the service said, if it said anything. */
type Link = { is: "opening" } | { is: "live" } | { is: "lost"; again: number; why: string } | { is: "refused"; problem: Problem };

/** What is followed: one lock, a namespace, or everything that is served. */
interface Scope { path: string; namespace: string; isAll: boolean; isSingle: boolean }

let redrawn = () => {};
const store = new Store(() => redrawn());

let rights: Rights | undefined;
let scope: Scope | undefined;
let link: Link = { is: "opening" };
let following: AbortController | undefined;
let announced = "";

function setLink(next: Link): void {
  if (next.is === "lost") store.lose();
  if (next.is !== link.is) announced = { opening: "", live: "Live", lost: "The connection is lost", refused: "Refused" }[next.is];
  link = next;
  store.redraw();
}

const canFollow = (read: Rights) => read.verbs.includes("list") && read.verbs.includes("watch");

/** Finds what the viewer may follow, from the most that the address asks for. */
async function findScope(route: Route): Promise<Scope> {
  rights = await readRights();
  const own = rights.own_namespace;
  if (canFollow(rights)) {
    const isAll = rights.is_authenticated;
    return { path: "/v1/feed", namespace: isAll ? "" : own ?? "", isAll, isSingle: false };
  }
  const namespace = route.namespace || route.lock?.namespace || own;
  if (!namespace) {
    const right = { verb: "watch", resource: "locks.forrst.dev", namespace: "" };
    throw new Refusal({ type: "", title: "", status: 403, detail: "You may not watch the locks of all namespaces. Choose one.", right });
  }
  rights = await readRights(namespace);
  if (canFollow(rights)) return { path: `/v1/namespaces/${encodeURIComponent(namespace)}/feed`, namespace, isAll: false, isSingle: false };
  if (route.lock) {
    const single = await readRights(route.lock.namespace, route.lock);
    if (single.verbs.includes("watch") && !isAddressable(route.lock)) {
      const detail = `A browser cannot send a request about the key ${route.lock.key}, which it takes for a step in the path. Use kubectl lock.`;
      throw new Refusal({ type: "", title: "", status: 0, detail });
    }
    if (single.verbs.includes("watch")) {
      const path = lockPath(route.lock) + "?watch=true" + (route.lock.function ? "&function=" + encodeURIComponent(route.lock.function) : "");
      return { path, namespace: route.lock.namespace, isAll: false, isSingle: true };
    }
  }
  const verb = rights.verbs.includes("list") ? "watch" : "list";
  throw new Refusal({ type: "", title: "", status: 403, detail: `You may not ${verb} the locks of the namespace ${namespace}.`, right: { verb, resource: "locks.forrst.dev", namespace } });
}

function told(event: string, data: unknown): void {
  switch (event) {
    case "sync": {
      const { locks, now } = data as { locks: Lock[]; now?: string };
      return store.sync(locks, now);
    }
    case "past": return store.recall(data as Past);
    case "changes": {
      const { changes, now } = data as { changes: { event: string; lock: Lock }[]; now: string };
      return store.apply(changes, now);
    }
    case "lines": {
      const { lines, is_complete } = data as { lines: Line[]; is_complete: boolean };
      return store.setLines(lines, is_complete);
    }
    case "acquired":
    case "handed-off":
    case "renewed":
    case "changed":
    case "released":
    case "expired": return store.apply([{ event, lock: data as Lock }]);
    default: // A service of a later version may tell more.
  }
}

/** What to show instead of the locks after an error, or undefined if it may pass. */
function lasting(error: unknown): Problem | undefined {
  if (mayPass(error)) return undefined;
  if (error instanceof Refusal) return error.problem;
  return { type: "", title: "", status: 0, detail: `This page has failed: ${String(error)}` };
}

/** Follows the locks, and connects again whenever the stream ends, until another call. */
async function start(): Promise<void> {
  following?.abort();
  const { signal } = following = new AbortController();
  store.clear();
  scope = undefined;
  setLink({ is: "opening" });
  for (let failures = 0; !signal.aborted;) {
    let failed: unknown;
    try {
      const found = await findScope(readRoute());
      if (signal.aborted) return;
      if (scope && scope.path !== found.path) store.clear();
      scope = found;
      await follow(found.path, signal, (event, data) => {
        if (signal.aborted) return;
        told(event, data);
        if (event !== "sync") return; // Until then what is shown may be old.
        failures = 0;
        setLink({ is: "live" });
      });
    } catch (error) {
      if (signal.aborted) return;
      const problem = lasting(error);
      if (problem) return setLink({ is: "refused", problem });
      failed = error;
    }
    if (signal.aborted) return;
    const pause = pauseAfter(failures++, failed);
    setLink({ is: "lost", again: performance.now() + pause, why: failed instanceof Refusal ? failed.message : "" });
    await new Promise<void>(resume => {
      const timer = setTimeout(resume, pause);
      signal.addEventListener("abort", () => { clearTimeout(timer); resume(); }, { once: true });
    });
  }
}

/** Whether the stream tells of the locks of a namespace. */
function isFollowed(namespace: string): boolean { return !!scope && (scope.isAll || !scope.namespace || scope.namespace === namespace); }

/** Whether another address takes another stream. */
function needsAnother(next: Route): boolean {
  if (link.is === "refused") return link.problem.status !== 401 && link.problem.type !== foreign;
  if (!scope || scope.isAll) return false;
  if (scope.isSingle) return true;
  const wanted = next.namespace || next.lock?.namespace;
  return !!rights?.is_authenticated && !!wanted && wanted !== scope.namespace;
}

function forgetToken(): void {
  useToken("");
  rights = undefined;
  void start();
}

function App() {
  const [, draw] = useState(0);
  const [route, setRoute] = useState(readRoute());
  const [late, setLate] = useState("");
  useLayoutEffect(() => { // At once: an address that changes before the first drawing is on the screen is followed, too.
    redrawn = () => draw(count => count + 1);
    const moved = () => {
      const next = readRoute();
      setRoute(next);
      if (needsAnother(next)) void start();
    };
    window.addEventListener("hashchange", moved);
    window.addEventListener("popstate", moved);
    void start();
    return () => following?.abort();
  }, []);
  const now = store.now();
  const change = (part: Partial<Route>) => go({ ...route, ...part }, true);
  const closeDetail = () => go({ ...route, lock: undefined });
  const isRefused = link.is === "refused";
  useEffect(() => { document.title = route.lock ? route.lock.key + " · Locks" : "Locks"; }, [route.lock?.key]);
  return <div class={"page" + (route.lock && !isRefused ? " open" : "")} onKeyDown={event => {
    const target = event.target as HTMLElement;
    if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) {
      event.preventDefault();
      document.getElementById("search")?.focus();
    }
    // A dialog takes the key for itself, also when a browser has closed it and it is about to be shown again.
    if (event.key === "Escape" && route.lock && !document.querySelector("dialog")) closeDetail();
  }}>
    <Header link={link} />
    <div class="sr" role="status" aria-live="polite">{announced}</div>
    {late && <p class="notice late" role="alert"><span>{late}</span> <button type="button" onClick={() => setLate("")}>Close</button></p>}
    {link.is === "refused" ? <Refused problem={link.problem} route={route} /> : <main class={link.is === "lost" ? "stale" : ""}>
      <div class="board">
        {!scope?.isSingle && <><Stats route={route} now={now} change={change} /><Tools route={route} change={change} /><Locks route={route} now={now} /></>}
      </div>
      {route.lock ? <Detail key={idOf(route.lock)} of={route.lock} store={store} now={now} isLive={link.is === "live"}
        isFollowed={isFollowed(route.lock.namespace)} onClose={closeDetail} onLate={setLate} /> : <Activity route={route} now={now} />}
    </main>}
  </div>;
}

function Header({ link }: { link: Link }) {
  return <header class="top">
    <a class="brand" href="#/"><img src="icon.svg" alt="" width="28" height="28" /><h1>Locks</h1></a>
    {scope?.namespace && <span class="scope">in <Data>{scope.namespace}</Data></span>}
    <span class="grow" />
    <span class={"link " + link.is}><i aria-hidden="true" /><LinkText link={link} /></span>
    {rights && <Viewer rights={rights} />}
  </header>;
}

function LinkText({ link }: { link: Link }) {
  switch (link.is) {
    case "live": return <>Live</>;
    case "opening": return <>Connecting…</>;
    case "refused": return <>Not connected</>;
    case "lost": {
      const left = link.again - performance.now();
      const when = left > 0 ? ` in ${Math.ceil(left / 1000)}s` : "";
      return <><span class="why"><Data title={link.why}>{link.why || "Connection lost"}</Data></span><span>, trying again{when}</span></>;
    }
  }
}

const verbs = [
  ["list", "see them"], ["watch", "watch them"], ["get", "read one, and who waits for it"], ["create", "acquire one"],
  ["force-release", "take one from its holder"],
] as const;

function Viewer({ rights }: { rights: Rights }) {
  const where = scope?.namespace && !scope.isAll ? <>in <Data>{scope.namespace}</Data></> : "of all namespaces";
  return <details class="viewer">
    <summary>{rights.is_authenticated ? <Who user={rights.user} /> : "No sign-in"}</summary>
    <div>
      <p>{rights.is_authenticated ? <>You are <Data>{rights.user}</Data>.</>
        : "Callers are not authenticated here: every program on this machine may do everything."}</p>
      <p>With the locks {where} you may:</p>
      <ul class="verbs">{verbs.map(([verb, what]) => <Verb key={verb} verb={verb} what={what} isGiven={rights.verbs.includes(verb)} />)}</ul>
      {hasToken() && <button type="button" onClick={forgetToken}>Forget my token</button>}
    </div>
  </details>;
}

function Verb({ verb, what, isGiven }: { verb: string; what: string; isGiven: boolean }) {
  return <li class={isGiven ? "yes" : "no"}>
    <span aria-hidden="true">{isGiven ? "✓" : "✕"}</span> {what}<span class="sr">{isGiven ? ": yes" : ": no"}</span> <code>{verb}</code>
  </li>;
}

function Stats({ route, now, change }: { route: Route; now: number; change: (part: Partial<Route>) => void }) {
  let held = 0, contended = 0, expiring = 0;
  for (const entry of store.entries.values()) {
    if (entry.ended) continue;
    held++;
    if (entry.waiting) contended++;
    if (isExpiring(entry, now)) expiring++;
  }
  const rate = store.rates.slice(-6, -1).reduce((sum, each) => sum + each, 0) / 5;
  return <section class="stats" aria-label="Numbers">
    <div><b>{held.toLocaleString()}</b><span>held</span></div>
    <button type="button" aria-pressed={route.contended} onClick={() => change({ contended: !route.contended })}><b>{contended.toLocaleString()}</b><span>contended</span></button>
    <button type="button" aria-pressed={route.expiring} class={expiring ? "warn" : ""} onClick={() => change({ expiring: !route.expiring })}>
      <b>{expiring.toLocaleString()}</b><span>expiring</span></button>
    <div><b>{store.waiting.toLocaleString()}{store.linesComplete ? "" : "+"}</b><span>in line</span></div>
    <div class="rate"><b>{rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString()}</b><span>changes a second</span><Spark rates={store.rates} /></div>
  </section>;
}

function Tools({ route, change }: { route: Route; change: (part: Partial<Route>) => void }) {
  const namespaces = useNamespaces();
  return <form class="tools" role="search" onSubmit={event => event.preventDefault()}>
    <label class="search"><span class="sr">Search keys, holders and reasons</span>
      <input id="search" type="search" placeholder="Search keys, holders, reasons" autocomplete="off" spellcheck={false} value={route.search}
        onInput={event => change({ search: event.currentTarget.value })} /><kbd aria-hidden="true">/</kbd></label>
    <label><span class="sr">Namespace</span>
      <select value={route.namespace} onChange={event => change({ namespace: event.currentTarget.value })}>
        <option value="">{scope?.isAll ? "All namespaces" : "Namespace"}</option>
        {namespaces.map(each => <option key={each} value={each}>{each}</option>)}
        {route.namespace && !namespaces.includes(route.namespace) && <option value={route.namespace}>{route.namespace}</option>}
      </select></label>
    <label class="holder"><span class="sr">Holder</span>
      <input type="text" class="by" placeholder="Holder" autocomplete="off" spellcheck={false} value={route.holder} onInput={event => change({ holder: event.currentTarget.value })} /></label>
    <label><span class="sr">Order</span>
      <select value={route.sort} onChange={event => change({ sort: event.currentTarget.value as Sort })}>
        <option value="key">By key</option><option value="expiry">Expiring first</option><option value="waiting">Longest line first</option><option value="since">Held longest first</option>
      </select></label>
  </form>;
}

/** The namespaces that have had locks, looked for once a second. */
function useNamespaces(): string[] {
  const found = useRef({ at: -Infinity, names: [] as string[] });
  if (performance.now() - found.current.at > 1000) {
    found.current = { at: performance.now(), names: [...new Set(Array.from(store.entries.values(), each => each.lock.namespace))].sort() };
  }
  return found.current.names;
}

function Locks({ route, now }: { route: Route; now: number }) {
  const entries = store.view(route);
  if (entries.length) return <List entries={entries} route={route} now={now} hasNamespaces={scope?.isAll ?? false} />;
  if (!store.isSynced) return <div class="empty"><p><strong>Reading the locks…</strong></p></div>;
  if (!store.entries.size) {
    return <div class="empty"><p><strong>No lock is held.</strong></p><p class="quiet">It shows here the moment that a caller acquires one.</p></div>;
  }
  const showAll = () => go({ ...route, search: "", holder: "", namespace: "", contended: false, expiring: false }, true);
  return <div class="empty"><p><strong>No lock fits.</strong></p><button type="button" onClick={showAll}>Show all locks</button></div>;
}

const words: Record<string, string> = { acquired: "acquired", "handed-off": "handed on", released: "released", expired: "expired" };
const relations: Record<string, string> = { "handed-off": "to ", released: "of ", expired: "of " };

function Activity({ route, now }: { route: Route; now: number }) {
  const recent = store.happened.filter(each => !route.namespace || each.lock.namespace === route.namespace).slice(-30).reverse();
  if (!recent.length) return null;
  return <aside class="activity" aria-label="Lately">
    <h2>Lately</h2>
    <ol>{recent.map(({ number, at, event, lock }) => <li key={number} class={event}>
      <span class="what">{words[event] ?? event}</span>
      <a href={hashOf({ ...route, lock: { namespace: lock.namespace, key: lock.key, function: lock.function } })}><Data>{lock.key}</Data></a>
      <small class="quiet">{relations[event] ?? "by "}<Who user={lock.holder} /></small>
      <time class="quiet" title={clockTime(at)}>{now - at < 1000 ? "now" : duration(now - at, false)}</time>
    </li>)}</ol>
  </aside>;
}

function Refused({ problem, route }: { problem: Problem; route: Route }) {
  return <main class="refused"><section>
    {problem.status === 401 && <Unknown />}
    {problem.type === foreign && <>
      <h2>Sign in again</h2>
      <p>{problem.detail}</p>
      <div class="buttons">
        <button type="button" class="main" onClick={() => location.reload()}>Reload the page</button>
        <button type="button" onClick={() => void start()}>Try again</button>
      </div>
    </>}
    {problem.status !== 401 && problem.type !== foreign && <Forbidden problem={problem} route={route} />}
  </section></main>;
}

function Unknown() {
  const [entered, setEntered] = useState("");
  const token = entered.trim();
  const isWrong = token !== "" && !isToken(token);
  const enter = (event: Event) => {
    event.preventDefault();
    if (!isToken(token)) return;
    useToken(token);
    setEntered("");
    void start();
  };
  return <>
    <h2>Who are you?</h2>
    <p>{hasToken() ? "The service did not accept this token." : "This service shows locks to callers it knows."} Enter a token that the cluster accepts:</p>
    <form onSubmit={enter}>
      <label for="token">Bearer token</label>
      <input id="token" type="password" autocomplete="off" spellcheck={false} autoFocus value={entered} aria-describedby="token-problem"
        onInput={event => setEntered(event.currentTarget.value)} />
      <p id="token-problem" class={isWrong ? "notice bad" : "sr"} role="status">
        {isWrong && "This is no token: it has a space, a quotation mark or an invisible character that came with it. Copy it again."}</p>
      <button type="submit" class="main" disabled={!token || isWrong}>Show the locks</button>
    </form>
    <p class="quiet small">It stays in the memory of this page, and is gone when you close or reload it. It is in no address and no storage.
      A token of your service account: <code>kubectl create token NAME -n NAMESPACE --audience lock-operator.forrst.dev</code> (the audience that the façade takes unless it is configured otherwise).</p>
  </>;
}

function Forbidden({ problem, route }: { problem: Problem; route: Route }) {
  const [namespace, setNamespace] = useState(route.namespace);
  const isForbidden = problem.status === 403;
  const choose = (event: Event) => {
    event.preventDefault();
    go({ ...route, lock: undefined, namespace: namespace.trim() }, true);
  };
  return <>
    <h2>{isForbidden ? "You may not see this" : "That did not work"}</h2>
    <p><Data>{problem.detail}</Data></p>
    {problem.right && <p class="quiet">It takes the verbs <code>list</code> and <code>watch</code> on <code>{problem.right.resource}</code>
      {problem.right.namespace ? <> in <Data>{problem.right.namespace}</Data></> : " in all namespaces"}.</p>}
    {isForbidden && <form onSubmit={choose}>
      <label for="namespace">Another namespace</label>
      <input id="namespace" type="text" autocomplete="off" spellcheck={false} value={namespace} onInput={event => setNamespace(event.currentTarget.value)} />
      <button type="submit" class="main" disabled={!namespace.trim()}>Show its locks</button>
    </form>}
    <div class="buttons"><button type="button" onClick={() => void start()}>Try again</button>
      {hasToken() && <button type="button" onClick={forgetToken}>Use another token</button>}</div>
  </>;
}

render(<App />, document.getElementById("page")!);
