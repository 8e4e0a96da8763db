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

/**
 * The same where the globals are those of a DOM: what else meets one of its classes, a timer, or bytes and errors of Node.js. The signals
 * are those that the test itself sees.
 */
export const domTestFile = (name: string): string => `${testFile(name)}
import { rootCertificates } from "node:tls";
import { memoryEtcd } from "leasehold/testing";
test("signals, events, bytes and timers", async () => {
  const { connect, inspect, lockAll, Mutex, Session, ClusterLockManager } = leasehold;
  const isTrue = (is, what) => { if (!is) throw new Error(what); };
  const name = ${JSON.stringify(name)} + "-dom";
  isTrue(typeof window === "object" && typeof document === "object", "no DOM");
  const cluster = connect({ hosts: process.env.HOSTS, renewal: "worker" });
  const stop = new AbortController();
  const held = await new Mutex(cluster, name).lock({ signal: stop.signal });
  const all = await lockAll(cluster, [name + "-a", name + "-b"]);
  const both = held.signalWith(stop.signal);
  for (const signal of [held.signal, all.signal, both]) isTrue(signal instanceof AbortSignal, "a foreign signal");
  let aborts = 0;
  for (const signal of [held.signal, all.signal, both]) signal.addEventListener("abort", () => aborts++);
  const session = await Session.open(cluster);
  let changes = 0;
  session.addEventListener("statechange", ({ state }) => (changes += state === "closed" ? 1 : 0));
  const waiting = new Mutex(session, name).lock({ signal: stop.signal }).catch((reason) => reason);
  while ((await inspect(cluster, name)).waiters.length === 0);
  stop.abort(new Error("enough"));
  isTrue((await waiting).message === "enough", "no abort");
  await Promise.all([held.release(), all.release()]);
  isTrue(aborts === 3, "aborts: " + aborts);
  await new ClusterLockManager(cluster).request(name + "-web", { signal: new AbortController().signal }, () => {});
  await session.close();
  isTrue(changes === 1, "changes: " + changes);
  await cluster.close();

  const rootCertificate = Buffer.from(rootCertificates[0]);
  await connect({ hosts: "https://127.0.0.1:1", credentials: { rootCertificate } }).close();
  const etcd = await memoryEtcd({ time: "virtual" });
  const virtual = connect({ hosts: etcd.hosts, session: { ttlSeconds: 5 } });
  const lost = await new Mutex(virtual, name).lock();
  await etcd.cut();
  await etcd.advance(10_000);
  isTrue(lost.signal.reason.code === "LOCK_LOST", "not lost");
  await virtual.close();
  await etcd.stop();
});
`;

/** Bundles `lock.mjs` with the package that is named, into a file in `out/`. Prints errors and warnings, and nothing else. */
export const bundle = `
import path from "node:path";
const [name, filename] = process.argv.slice(2);
const tool = await import(name);
const output = { path: path.resolve("out"), filename };
const settings = { context: process.cwd(), entry: "./lock.mjs", target: "node", mode: "production", output };
(tool.rspack ?? tool.default)(settings, (failure, stats) => {
  const said = failure?.stack ?? stats.toString({ all: false, errors: true, warnings: true });
  if (said) console.log(said);
});
`;

/** With STANDALONE in the environment, leasehold is not bundled, and the server starts programs of it. */
export const nextProject = (name: string): Readonly<Record<string, string>> => ({
  "package.json": "{}",
  "next.config.mjs": `export default process.env.STANDALONE
  ? {
      output: "standalone",
      serverExternalPackages: ["leasehold"],
      outputFileTracingIncludes: { "/*": ["./node_modules/leasehold/dist/*.js"] },
    }
  : {};
`,
  "app/layout.js": `export default ({ children }) => <html><body>{children}</body></html>;`,
  "app/page.js": `export default () => <p>leasehold</p>;`,
  "app/lock/route.js": `import * as leasehold from "leasehold";
${BODY}
export const dynamic = "force-dynamic";
export async function GET() {
  try {
    await check(leasehold, ${JSON.stringify(name)});
    if (process.env.STANDALONE) {
      const cluster = leasehold.connect({ hosts: process.env.HOSTS, guardian: true, renewal: "worker" });
      await new leasehold.Mutex(cluster, ${JSON.stringify(name)}).withLock(() => {});
      await cluster.close();
    }
    return new Response("works");
  } catch (error) {
    return new Response(error.stack, { status: 500 });
  }
}
`,
});

/** Starts a server of Next.js, and prints what it answers. */
export const visit = `
import { spawn } from "node:child_process";
const server = spawn(process.execPath, process.argv.slice(2), { stdio: ["ignore", "pipe", "inherit"] });
let said = "";
for await (const chunk of server.stdout) {
  said += chunk;
  const [, port] = /http:\\/\\/[^\\s:]+:([0-9]+)/.exec(said) ?? [];
  if (port === undefined || !said.includes("Ready")) continue;
  console.log(await (await fetch("http://127.0.0.1:" + port + "/lock")).text());
  break;
}
server.kill();
`;
