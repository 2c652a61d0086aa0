import assert from "node:assert/strict";
import { test } from "node:test";
import { requests, schemas } from "../src/api.js";
import { skip, url } from "./support.js";

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
