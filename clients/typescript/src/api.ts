// What the client sends and reads. A test looks up each member of these types in the OpenAPI document of the service.

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
