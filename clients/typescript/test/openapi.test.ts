import assert from "node:assert/strict";
import { test } from "node:test";
import type {
  AcquiredLock, AcquiredSet, Acquisition, FieldError, HolderReference, LockDocument, ProblemDocument, Renewal, SetAcquisition,
} from "../src/api.js";
import { skip, url } from "./support.js";

type Members<T> = { readonly [K in keyof Required<T>]: true };
const members = <T>(table: Members<T>) => Object.keys(table);
const acquisition: Members<Acquisition> = { ttl_seconds: true, wait_seconds: true, priority: true, function: true, reason: true, holder_ref: true };
const lock: Members<LockDocument> = {
  namespace: true, key: true, function: true, fencing_token: true, holder: true, reason: true, ttl_seconds: true,
  acquired_at: true, renewed_at: true, expires_at: true,
};

/** The members by the names of the schemas: exactly those of the types, or this file does not compile. */
const schemas: Readonly<Record<string, readonly string[]>> = {
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
const requests: readonly { path: string; method: string; parameters: readonly string[] }[] = [
  { path: one, method: "post", parameters: ["namespace", "key", "Idempotency-Key", "hold"] },
  { path: one, method: "put", parameters: ["namespace", "key", "function", "X-Lock-Token", "hold"] },
  { path: one, method: "delete", parameters: ["namespace", "key", "function", "X-Lock-Token", "force", "reason", "fencing_token"] },
  { path: one, method: "get", parameters: ["namespace", "key", "function"] },
  { path: several, method: "post", parameters: ["namespace", "Idempotency-Key"] },
  { path: several, method: "put", parameters: ["namespace", "key", "function", "X-Lock-Token"] },
  { path: several, method: "delete", parameters: ["namespace", "key", "function", "X-Lock-Token"] },
];

interface Parameter { $ref?: string; name: string }
interface Operation { parameters?: Parameter[] }
interface Document {
  paths: Record<string, Record<string, Operation> & { parameters?: Parameter[] }>;
  components: { parameters: Record<string, Parameter>; schemas: Record<string, { properties: object }> };
}

test("everything that the client sends and reads is in the OpenAPI document of the service", { skip }, async () => {
  const document = await (await fetch(`${url}/openapi.json`)).json() as Document;
  const nameOf = (parameter: Parameter) => parameter.$ref === undefined ? parameter.name : document.components.parameters[parameter.$ref.split("/").at(-1) ?? ""]?.name;
  const missing: string[] = [];
  for (const { path, method, parameters } of requests) {
    const operation = document.paths[path]?.[method];
    const known = [...document.paths[path]?.parameters ?? [], ...operation?.parameters ?? []].map(nameOf);
    for (const name of parameters) if (!known.includes(name)) missing.push(`${method} ${path}: ${name}`);
  }
  for (const [name, members] of Object.entries(schemas)) {
    for (const member of members) if (!(member in (document.components.schemas[name]?.properties ?? {}))) missing.push(`${name}.${member}`);
  }
  assert.deepEqual(missing, []);
});
