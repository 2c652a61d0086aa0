// What the client sends and reads. The tables have exactly the members of the types, or this file does not compile; a test
// looks up each of them in the OpenAPI document of the service.

export interface HolderReference { api_version: string; kind: string; name: string; uid: string }

export interface Acquisition {
  ttl_seconds: number; wait_seconds?: number | undefined; priority?: number | undefined; function?: string | undefined;
  reason?: string | undefined; holder_ref?: HolderReference | undefined;
}
export interface SetAcquisition extends Acquisition { keys: readonly string[]; together?: "strict" | undefined }
export interface Renewal { ttl_seconds: number }
export interface LockDocument {
  namespace: string; key: string; function?: string; fencing_token?: number; holder: string; reason?: string; ttl_seconds?: number;
  acquired_at: string; renewed_at: string; expires_at: string;
}
export interface AcquiredLock extends LockDocument { lock_token: string; fencing_token: number }
export interface AcquiredSet { lock_token: string; fencing_token: number; expires_at: string; locks: readonly LockDocument[] }
export interface FieldError { in: string; field: string; detail: string; maximum?: number }
/** RFC 9457. */
export interface ProblemDocument {
  type: string; title: string; status: number; detail: string; retryable: boolean; key?: string; holder?: string;
  acquired_at?: string; expires_at?: string; errors?: readonly FieldError[];
}

type Members<T> = { readonly [K in keyof Required<T>]: true };
const members = <T>(table: Members<T>) => Object.keys(table);
const acquisition: Members<Acquisition> = { ttl_seconds: true, wait_seconds: true, priority: true, function: true, reason: true, holder_ref: true };
const lock: Members<LockDocument> = {
  namespace: true, key: true, function: true, fencing_token: true, holder: true, reason: true, ttl_seconds: true,
  acquired_at: true, renewed_at: true, expires_at: true,
};

/** The members by the names of the schemas. */
export const schemas: Readonly<Record<string, readonly string[]>> = {
  HolderRef: members<HolderReference>({ api_version: true, kind: true, name: true, uid: true }),
  Acquisition: members<Acquisition>(acquisition),
  SetAcquisition: members<SetAcquisition>({ ...acquisition, keys: true, together: true }),
  Renewal: members<Renewal>({ ttl_seconds: true }),
  Lock: members<LockDocument>(lock),
  AcquiredLock: members<AcquiredLock>({ ...lock, lock_token: true }),
  AcquiredSet: members<AcquiredSet>({ lock_token: true, fencing_token: true, expires_at: true, locks: true }),
  FieldError: members<FieldError>({ in: true, field: true, detail: true, maximum: true }),
  Problem: members<ProblemDocument>({
    type: true, title: true, status: true, detail: true, retryable: true, key: true, holder: true, acquired_at: true, expires_at: true, errors: true,
  }),
};

const one = "/v1/namespaces/{namespace}/locks/{key}";
const several = "/v1/namespaces/{namespace}/acquisitions";

/** The requests, and the parameters that the client sends with them. */
export const requests: readonly { path: string; method: string; parameters: readonly string[] }[] = [
  { path: one, method: "post", parameters: ["namespace", "key", "Idempotency-Key", "hold"] },
  { path: one, method: "put", parameters: ["namespace", "key", "function", "X-Lock-Token", "hold"] },
  { path: one, method: "delete", parameters: ["namespace", "key", "function", "X-Lock-Token", "force", "reason", "fencing_token"] },
  { path: one, method: "get", parameters: ["namespace", "key", "function"] },
  { path: several, method: "post", parameters: ["namespace", "Idempotency-Key"] },
  { path: several, method: "put", parameters: ["namespace", "key", "function", "X-Lock-Token"] },
  { path: several, method: "delete", parameters: ["namespace", "key", "function", "X-Lock-Token"] },
];

/** What requests name: one lock, or several that are held together. */
export interface Resource {
  /** What messages call it. */
  label: string;
  keys: readonly string[];
  /** What POST adds to the body. */
  body: { function?: string | undefined; keys?: readonly string[] };
  /** The path of POST, and of the others with the parameters that name the locks. */
  post: string;
  path: string;
}

export function lockResource(namespace: string, key: string, fn?: string): Resource {
  const path = `/v1/namespaces/${encodeURIComponent(namespace)}/locks/${encodeURIComponent(key)}`;
  return { label: `lock "${key}" in namespace "${namespace}"`, keys: [key], body: { function: fn }, post: path, path: withQuery(path, { function: fn }) };
}

export function setResource(namespace: string, keys: readonly string[], fn?: string): Resource {
  const path = `/v1/namespaces/${encodeURIComponent(namespace)}/acquisitions`;
  const query = keys.map(key => `key=${encodeURIComponent(key)}`).join("&");
  const label = `locks ${keys.map(key => `"${key}"`).join(", ")} in namespace "${namespace}"`;
  return { label, keys, body: { function: fn, keys }, post: path, path: withQuery(`${path}?${query}`, { function: fn }) };
}

/** Appends the parameters that are defined to a path that may have some. */
export function withQuery(path: string, parameters: Record<string, string | number | undefined>): string {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined);
  const query = given.map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`).join("&");
  return query === "" ? path : path + (path.includes("?") ? "&" : "?") + query;
}
