import assert from "node:assert/strict";
import { once } from "node:events";
import { copyFile, mkdtemp, readFile } from "node:fs/promises";
import https from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { LockUnavailableError } from "../src/index.js";
import { newClient } from "./support.js";

const folder = process.env["LOCK_CERTIFICATES"] ?? "";

test("a certificate authority is read from its file for each request", { skip: folder === "" && "LOCK_CERTIFICATES is not set" }, async () => {
  const file = path.join(await mkdtemp(path.join(tmpdir(), "lock-")), "ca.crt");
  const serve = async (name: string) => {
    const server = https.createServer({ cert: await readFile(`${folder}/${name}.crt`), key: await readFile(`${folder}/${name}.key`) }, (_, response) => {
      response.writeHead(404, { "Content-Type": "application/problem+json" });
      response.end(JSON.stringify({ type: "urn:lock-operator:problem:lock-not-found", title: "", status: 404, detail: "", retryable: false }));
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    return server;
  };
  const first = await serve("first");
  const { port } = first.address() as AddressInfo;
  const client = newClient({ url: `https://127.0.0.1:${port}`, ca: { file }, requestTimeoutMs: 2000 });
  await assert.rejects(client.get("a"), LockUnavailableError, "without the file");
  await copyFile(`${folder}/second.crt`, file);
  await assert.rejects(client.get("a"), LockUnavailableError, "with another authority");
  await copyFile(`${folder}/first.crt`, file);
  assert.equal(await client.get("a"), undefined);
  first.closeAllConnections();
  first.close();
});
