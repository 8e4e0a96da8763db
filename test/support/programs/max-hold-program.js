// `node max-hold-program.js HOSTS NAME MAX_HOLD_MS`: takes a lock and stops itself, as a debugger or a container's pause does.
// Prints what the first lines after that see, as a line of JSON.
import { connect, Mutex } from "leasehold";

const [hosts = "", name = "", maxHoldMs] = process.argv.slice(2);
const cluster = connect({ hosts: hosts.split(","), session: { ttlSeconds: 60 } });
const lock = await new Mutex(cluster, name, { maxHoldMs: Number(maxHoldMs) }).lock();
const { signal } = lock;

const before = lock.held;
process.kill(process.pid, "SIGSTOP");
const aborted = signal.aborted;
const after = lock.held;

console.log(JSON.stringify({ before, aborted, after, ms: lock.remainingMs(), loss: signal.reason.loss }));
await cluster.close();
