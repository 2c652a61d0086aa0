import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { eventually, lockObjects, newKey, skip } from "./support.js";

/** Runs a program in a process of its own, which has to end by itself, and returns what it prints. */
async function run(program: string): Promise<string> {
  const text = `import { newClient } from ${JSON.stringify(new URL("support.js", import.meta.url).href)}; const client = newClient();\n${program}`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", text], { stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", data => { output += String(data); });
  const [code] = await once(child, "close") as [number];
  assert.equal(code, 0);
  return output;
}

test("a program that has released its locks ends by itself", { skip }, async () => {
  const output = await run(`
    const held = await client.acquire("${newKey("leak")}", { ttlMs: 600_000 });
    const all = await client.acquireAll(["${newKey("leak")}", "${newKey("leak")}"], { ttlMs: 600_000 });
    await client.acquire(held.key, { onContention: "result" });
    await client.acquire(held.key, { waitMs: 60_000, signal: AbortSignal.timeout(100) }).catch(() => {});
    await held.release();
    await all.release();
    process.on("exit", () => console.log(process.getActiveResourcesInfo().filter(each => each === "Timeout").length));
  `);
  assert.equal(output.trim(), "0");
  await eventually(async () => (await lockObjects()).length === 0, "the end of all locks");
});

for (const hold of [false, true]) {
  test(`a lock that is held ${hold ? "by a connection " : ""}does not keep a program alive`, { skip }, async () => {
    // The end of the connection ends the lock. Without one, that takes the ttl.
    const options = hold ? "{ hold: true, ttlMs: 600_000 }" : "{ ttlMs: 2000 }";
    assert.equal(await run(`const held = await client.acquire("${newKey("leak")}", ${options}); console.log(held.ok);`), "true\n");
    await eventually(async () => (await lockObjects()).length === 0, "the end of all locks");
  });
}
