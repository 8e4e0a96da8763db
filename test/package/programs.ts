// The program that each runtime, bundler and test runner runs against a real etcd.

/** What it does with `leasehold`, which `l` names. Its errors come from a wait that times out. */
const BODY = `
async function check(l, name) {
  const { connect, isLeaseholdError, lead, LockTimeoutError, Mutex, Session } = l;
  const cluster = connect({ hosts: process.env.HOSTS });
  const mutex = new Mutex(cluster, name);
  const fence = await mutex.withLock((lock) => lock.fence);
  const held = await mutex.lock();
  const session = await Session.open(cluster);
  const error = await new Mutex(session, name).lock({ timeoutMs: 200 }).catch((reason) => reason);
  await held.release();
  const stop = new AbortController();
  await lead(cluster, name + "-leader", () => stop.abort(), { signal: stop.signal });
  await cluster.close();
  // JavaScriptCore does not read the name.
  const header = "Bun" in globalThis ? error.name : error.stack.split(":")[0];
  const seen = [
    typeof fence, held.fence > fence, error.name, header, error instanceof LockTimeoutError,
    isLeaseholdError(error, "LOCK_TIMEOUT"),
  ].join(" ");
  if (seen !== "bigint true LockTimeoutError LockTimeoutError true true") throw new Error("got " + seen);
}
`;

/** A whole program. `name` is that of its locks. */
export const esModule = (name: string): string => `import * as leasehold from "leasehold";
${BODY}
await check(leasehold, ${JSON.stringify(name)});
console.log("works");
`;

/** Also fails unless `require()` and `import` give the same module. */
export const commonJs = (name: string): string => `const leasehold = require("leasehold");
${BODY}
async function main() {
  const { lockPage } = require("leasehold/ui");
  const imported = await import("leasehold");
  if (imported.Mutex !== leasehold.Mutex) throw new Error("require() and import give two copies");
  if ((await import("leasehold/ui")).lockPage !== lockPage) throw new Error("two copies of leasehold/ui");
  await check(leasehold, ${JSON.stringify(name)});
  console.log("works");
}
main();
`;

/** A test in TypeScript that is valid for Jest and Vitest with their globals. */
export const testFile = (name: string): string => `// @ts-nocheck -- it contains JavaScript
import * as leasehold from "leasehold";
import { lockPage } from "leasehold/ui";
${BODY}
test("works", async () => {
  if (typeof lockPage !== "function") throw new Error("leasehold/ui is missing");
  await check(leasehold, ${JSON.stringify(name)});
});
`;
