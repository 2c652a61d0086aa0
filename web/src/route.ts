// The address of what is shown. It never has a token.

export interface LockName { namespace: string; key: string; function?: string }
export type Sort = "key" | "expiry" | "waiting" | "since";
export interface Route { lock?: LockName; namespace: string; search: string; holder: string; contended: boolean; expiring: boolean; sort: Sort }

const sorts: Sort[] = ["key", "expiry", "waiting", "since"];

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function readRoute(hash = location.hash): Route {
  const [path = "", search = ""] = hash.replace(/^#/, "").split("?", 2);
  const params = new URLSearchParams(search);
  const only = (params.get("only") ?? "").split(",");
  const sort = params.get("sort") as Sort;
  const route: Route = {
    namespace: params.get("namespace") ?? "", search: params.get("q") ?? "", holder: params.get("holder") ?? "",
    contended: only.includes("contended"), expiring: only.includes("expiring"), sort: sorts.includes(sort) ? sort : "key",
  };
  const named = /^\/namespaces\/([^/]+)\/locks\/([^/]+)$/.exec(path);
  if (named) route.lock = { namespace: decoded(named[1]!), key: decoded(named[2]!), function: params.get("function") ?? undefined };
  return route;
}

export function hashOf(route: Route): string {
  const params = new URLSearchParams();
  const set = (name: string, value: string | undefined) => { if (value) params.set(name, value); };
  set("function", route.lock?.function);
  set("namespace", route.namespace);
  set("q", route.search);
  set("holder", route.holder);
  set("only", [route.contended && "contended", route.expiring && "expiring"].filter(Boolean).join(","));
  set("sort", route.sort === "key" ? "" : route.sort);
  const path = route.lock ? `#/namespaces/${encodeURIComponent(route.lock.namespace)}/locks/${encodeURIComponent(route.lock.key)}` : "#/";
  const text = params.toString();
  return path + (text && "?" + text);
}

/** Goes to another address. What only narrows the list replaces the entry in the browser's history. */
export function go(route: Route, replace = false): void {
  history[replace ? "replaceState" : "pushState"](null, "", hashOf(route));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}
