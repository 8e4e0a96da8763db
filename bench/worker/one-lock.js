// What a process with one lock occupies: `node --expose-gc one-lock.js URL-OF-BUILD HOST NAME [TRANSPORT]`; prints a line
// of JSON. It is JavaScript because tsx would be in its memory.
import { setTimeout as delay } from "node:timers/promises";

/** For what follows the grant: timers, and requests of the session's own. */
const SETTLE_MS = 500;

const [entry = "", host = "", name = "", transport] = process.argv.slice(2);
const leasehold = /** @type {typeof import("../../src/index.js")} */ (await import(entry));
const options = transport === undefined ? {} : { transport: /** @type {"etcd3"} */ (transport) };
const cluster = leasehold.connect({ hosts: host, ...options });
const session = await leasehold.Session.open(cluster);
await new leasehold.Mutex(session, name).lock();
await delay(SETTLE_MS);
globalThis.gc?.();
const { rss, heapUsed } = process.memoryUsage();
console.log(JSON.stringify({ rss, heapUsed }));
await cluster.close();
