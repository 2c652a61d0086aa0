// The page: who views it, what it follows, and its parts.

import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { follow, hasToken, lockPath, readRights, Refusal, useToken, type Line, type Lock, type Past, type Problem, type Rights } from "./api";
import { Data, duration, Spark, Who } from "./bits";
import { Detail } from "./detail";
import { List } from "./list";
import { go, hashOf, readRoute, type Route, type Sort } from "./route";
import { isExpiring, Store } from "./store";

type Link = { is: "opening" } | { is: "live" } | { is: "lost"; again: number } | { is: "refused"; problem: Problem };

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
  if (next.is !== link.is) announced = { opening: "", live: "Live", lost: "The connection is lost", refused: "Refused" }[next.is];
  link = next;
  store.redraw();
}

const canFollow = (read: Rights) => read.verbs.includes("list") && read.verbs.includes("watch");

/** Finds what the viewer may follow, from the most that the address asks for. */
async function findScope(route: Route): Promise<Scope> {
  rights = await readRights();
  const own = rights.own_namespace;
  if (canFollow(rights)) return { path: "/v1/feed", namespace: rights.is_authenticated ? "" : own ?? "", isAll: rights.is_authenticated, isSingle: false };
  const namespace = route.namespace || route.lock?.namespace || own;
  if (!namespace) throw new Refusal({ type: "", title: "", status: 403, detail: "You may not watch the locks of all namespaces. Choose one.", right: { verb: "watch", resource: "locks.forrst.dev", namespace: "" } });
  rights = await readRights(namespace);
  if (canFollow(rights)) return { path: `/v1/namespaces/${encodeURIComponent(namespace)}/feed`, namespace, isAll: false, isSingle: false };
  if (route.lock) {
    const single = await readRights(route.lock.namespace, route.lock);
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

/** Follows the locks, and connects again whenever the stream ends, until another call. */
async function start(): Promise<void> {
  following?.abort();
  const { signal } = following = new AbortController();
  store.clear();
  scope = undefined;
  setLink({ is: "opening" });
  for (let failures = 0; !signal.aborted;) {
    try {
      const found = await findScope(readRoute());
      if (signal.aborted) return;
      scope = found;
      await follow(found.path, signal, () => { failures = 0; }, (event, data) => {
        if (signal.aborted) return;
        told(event, data);
        if (event === "sync") setLink({ is: "live" }); // Until then what is shown may be old.
      });
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal && error.status < 500 && error.status !== 429) return setLink({ is: "refused", problem: error.problem });
    }
    if (signal.aborted) return;
    const pause = Math.min(5000, 500 * 2 ** failures++) * (0.75 + Math.random() / 2);
    setLink({ is: "lost", again: performance.now() + pause });
    await new Promise<void>(resume => {
      const timer = setTimeout(resume, pause);
      signal.addEventListener("abort", () => { clearTimeout(timer); resume(); }, { once: true });
    });
  }
}

function App() {
  const [, draw] = useState(0);
  const [route, setRoute] = useState(readRoute());
  useEffect(() => {
    redrawn = () => draw(count => count + 1);
    const moved = () => {
      const next = readRoute();
      setRoute(next);
      const wanted = next.namespace || next.lock?.namespace;
      if (scope?.isSingle || link.is === "refused" && link.problem.status === 403 || scope && !scope.isAll && rights?.is_authenticated && wanted && wanted !== scope.namespace) void start();
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
    if (event.key === "Escape" && route.lock && target.tagName !== "DIALOG" && !target.closest("dialog")) closeDetail();
  }}>
    <Header link={link} />
    <div class="sr" role="status" aria-live="polite">{announced}</div>
    {isRefused ? <Refused problem={(link as { problem: Problem }).problem} route={route} /> : <main class={link.is === "lost" ? "stale" : ""}>
      <div class="board">
        {!scope?.isSingle && <><Stats route={route} now={now} change={change} /><Tools route={route} change={change} /><Locks route={route} now={now} /></>}
      </div>
      {route.lock ? <Detail of={route.lock} store={store} now={now} isLive={link.is === "live"} onClose={closeDetail} /> : <Activity route={route} now={now} />}
    </main>}
  </div>;
}

function Header({ link }: { link: Link }) {
  return <header class="top">
    <a class="brand" href="#/"><img src="icon.svg" alt="" width="28" height="28" /><h1>Locks</h1></a>
    {scope?.namespace && <span class="scope">in <Data>{scope.namespace}</Data></span>}
    <span class="grow" />
    <span class={"link " + link.is}><i aria-hidden="true" />{link.is === "live" ? "Live" : link.is === "opening" ? "Connecting…" : link.is === "refused" ? "Not connected"
      : `Connection lost, trying again${link.again > performance.now() ? " in " + Math.ceil((link.again - performance.now()) / 1000) + "s" : ""}`}</span>
    {rights && <details class="viewer">
      <summary>{rights.is_authenticated ? <Who user={rights.user} /> : "Not signed in"}</summary>
      <div>
        <p>{rights.is_authenticated ? <>You are <Data>{rights.user}</Data>.</> : "Callers are not authenticated here: every program on this machine may do everything."}</p>
        <p>With the locks {scope?.isAll ? "of all namespaces" : scope?.namespace ? <>in <Data>{scope.namespace}</Data></> : "of all namespaces"} you may:</p>
        <ul class="verbs">{[["list", "see them"], ["watch", "watch them"], ["get", "read one, and who waits for it"], ["create", "acquire one"], ["force-release", "take one from its holder"]].map(([verb, what]) =>
          <li key={verb} class={rights!.verbs.includes(verb!) ? "yes" : "no"}><span aria-hidden="true">{rights!.verbs.includes(verb!) ? "✓" : "✕"}</span> {what}<span class="sr">{rights!.verbs.includes(verb!) ? ": yes" : ": no"}</span> <code>{verb}</code></li>)}</ul>
        {hasToken() && <button type="button" onClick={() => { useToken(""); rights = undefined; void start(); }}>Forget my token</button>}
      </div>
    </details>}
  </header>;
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
    <button type="button" aria-pressed={route.expiring} class={expiring ? "warn" : ""} onClick={() => change({ expiring: !route.expiring })}><b>{expiring.toLocaleString()}</b><span>expiring</span></button>
    <div><b>{store.waiting.toLocaleString()}{store.linesComplete ? "" : "+"}</b><span>in line</span></div>
    <div class="rate"><b>{rate < 10 ? rate.toFixed(1) : Math.round(rate).toLocaleString()}</b><span>changes a second</span><Spark rates={store.rates} /></div>
  </section>;
}

function Tools({ route, change }: { route: Route; change: (part: Partial<Route>) => void }) {
  const namespaces = useNamespaces();
  return <form class="tools" role="search" onSubmit={event => event.preventDefault()}>
    <label class="search"><span class="sr">Search keys, holders and reasons</span>
      <input id="search" type="search" placeholder="Search keys, holders, reasons" autocomplete="off" spellcheck={false} value={route.search} onInput={event => change({ search: event.currentTarget.value })} /><kbd aria-hidden="true">/</kbd></label>
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
  if (!entries.length) {
    const isNarrowed = store.entries.size > 0;
    return <div class="empty"><p><strong>{!store.isSynced ? "Reading the locks…" : isNarrowed ? "No lock fits." : "No lock is held."}</strong></p>
      {store.isSynced && (isNarrowed ? <button type="button" onClick={() => go({ ...route, search: "", holder: "", namespace: "", contended: false, expiring: false }, true)}>Show all locks</button>
        : <p class="quiet">It shows here the moment that a caller acquires one.</p>)}</div>;
  }
  return <List entries={entries} route={route} now={now} hasNamespaces={scope?.isAll ?? false} />;
}

const words: Record<string, string> = { acquired: "acquired", "handed-off": "handed on", released: "released", expired: "expired" };

function Activity({ route, now }: { route: Route; now: number }) {
  const recent = store.happened.filter(each => !route.namespace || each.lock.namespace === route.namespace).slice(-30).reverse();
  return <aside class="activity" aria-label="Lately">
    <h2>Lately</h2>
    {recent.length ? <ol>{recent.map(({ number, at, event, lock }) => <li key={number} class={event}>
      <span class="what">{words[event] ?? event}</span>
      <a href={hashOf({ ...route, lock: { namespace: lock.namespace, key: lock.key, function: lock.function } })}><Data>{lock.key}</Data></a>
      <small class="quiet">{event === "handed-off" ? "to " : event === "released" || event === "expired" ? "of " : "by "}<Who user={lock.holder} /></small>
      <time class="quiet">{now - at < 1000 ? "now" : duration(now - at, false)}</time>
    </li>)}</ol> : <p class="quiet">What happens to the locks shows here.</p>}
  </aside>;
}

function Refused({ problem, route }: { problem: Problem; route: Route }) {
  const [entered, setEntered] = useState("");
  const [namespace, setNamespace] = useState(route.namespace);
  const isUnknown = problem.status === 401;
  return <main class="refused">
    <section>
      {isUnknown ? <>
        <h2>Who are you?</h2>
        <p>{hasToken() ? "The service did not accept this token." : "This service shows locks to callers it knows."} Enter a token that the cluster accepts:</p>
        <form onSubmit={event => { event.preventDefault(); useToken(entered.trim()); setEntered(""); void start(); }}>
          <label for="token">Bearer token</label>
          <input id="token" type="password" autocomplete="off" spellcheck={false} autoFocus value={entered} onInput={event => setEntered(event.currentTarget.value)} />
          <button type="submit" class="main" disabled={!entered.trim()}>Show the locks</button>
        </form>
        <p class="quiet small">It stays in the memory of this page, and is gone when you close or reload it. It is in no address and no storage.
          A token of your service account: <code>kubectl create token NAME -n NAMESPACE --audience lock-operator.forrst.dev</code> (the audience that the façade takes unless it is configured otherwise).</p>
      </> : <>
        <h2>{problem.status === 403 ? "You may not see this" : "That did not work"}</h2>
        <p><Data>{problem.detail}</Data></p>
        {problem.right && <p class="quiet">It takes the verbs <code>list</code> and <code>watch</code> on <code>{problem.right.resource}</code>{problem.right.namespace ? <> in <Data>{problem.right.namespace}</Data></> : " in all namespaces"}.</p>}
        {problem.status === 403 && <form onSubmit={event => { event.preventDefault(); go({ ...route, lock: undefined, namespace: namespace.trim() }, true); }}>
          <label for="namespace">Another namespace</label>
          <input id="namespace" type="text" autocomplete="off" spellcheck={false} value={namespace} onInput={event => setNamespace(event.currentTarget.value)} />
          <button type="submit" class="main" disabled={!namespace.trim()}>Show its locks</button>
        </form>}
        <div class="buttons"><button type="button" onClick={() => void start()}>Try again</button>
          {hasToken() && <button type="button" onClick={() => { useToken(""); rights = undefined; void start(); }}>Use another token</button>}</div>
      </>}
    </section>
  </main>;
}

render(<App />, document.getElementById("page")!);
