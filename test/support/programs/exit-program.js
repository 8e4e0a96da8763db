// A program that uses everything once and then closes: if something keeps it alive after its last line, that is a bug
// in leasehold. `node exit-program.js HOSTS session|cluster|nothing`; prints a line of JSON on exit, or when it has
// closed nothing.
import { connect, DeadlockError, FenceGate, Mutex, Session, whileHeld } from "leasehold";
import { once } from "node:events";

const [hosts = "", closing = "cluster"] = process.argv.slice(2);
/** @type {string[]} */
const complaints = [];
process.on("warning", (warning) => complaints.push(`warning ${warning.name}: ${warning.message}`));
process.on("unhandledRejection", (reason) => complaints.push(`unhandled rejection ${String(reason)}`));

const cluster = connect({ hosts: hosts.split(","), session: { ttlSeconds: 5 } });

/** This many waits share one signal, and are served one after the other. @param {Mutex} mutex @param {number} size */
async function crowd(mutex, size) {
  const { signal } = new AbortController();
  let served = 0;
  await Promise.all(Array.from({ length: size }, () => mutex.withLock(() => void served++, { signal })));
  return served;
}

/**
 * A lock that waited for its turn, and a waiter behind it that gives up.
 * @param {Mutex} mutex @param {Session} session
 */
async function waits(mutex, session) {
  const own = await mutex.lock();
  const rival = new Mutex(session, mutex.name);
  const waiting = rival.lock();
  const late = await rival.lock({ timeoutMs: 300 }).catch((/** @type {Error} */ error) => error.name);
  await own.release();
  const lock = await waiting;
  const aborted = await mutex.lock({ signal: AbortSignal.timeout(50) }).catch((error) => error.name);
  void lock.release();
  return [late, aborted];
}

/** @param {Mutex} mutex */
async function nested(mutex) {
  return mutex.withLock(async (lock) => {
    new FenceGate().admit(lock.fence);
    lock.assertHeld(100);
    whileHeld(lock);
    const refused = await mutex.lock().catch((/** @type {Error} */ error) => error instanceof DeadlockError);
    return refused && (await mutex.withLock(() => true, { reentrant: true }));
  });
}

/** Every listener is called at the end, although the first one throws, and there are many. */
async function loses() {
  const session = await Session.open(cluster, { ttlSeconds: 2 });
  const lock = await new Mutex(session, `${closing}/lost`).lock();
  /** @type {string[]} */
  const heard = [];
  const thrown = once(process, "uncaughtException");
  session.addEventListener("statechange", () => {
    throw new Error("a listener's own");
  });
  for (let i = 0; i < 20; i++) {
    session.addEventListener("statechange", ({ state }) => heard.push(state));
    session.signal.addEventListener("abort", () => heard.push("session"));
    lock.signal.addEventListener("abort", () => heard.push("lock"));
  }
  await session.close({ drainMs: 0 });
  const [error] = await thrown;
  void lock.release();
  return [lock.signal.reason.code, error.message, [...new Set(heard)].join(), heard.length];
}

async function adopts() {
  const session = await Session.open(cluster, { ttlSeconds: 5 });
  const lock = await new Mutex(session, `${closing}/adopted`).lock();
  const adopted = await Session.adopt(cluster, await session.orphan());
  const again = await new Mutex(adopted, `${closing}/adopted`).lock();
  const same = again.fence === lock.fence;
  await again.release();
  return { same, adopted };
}

const session = await Session.open(cluster, { ttlSeconds: 5 });
const done = {
  crowd: await crowd(new Mutex(session, `${closing}/crowd`), closing === "nothing" ? 1 : 100),
  waits: await waits(new Mutex(cluster, `${closing}/waits`), session),
  nested: await nested(new Mutex(cluster, `${closing}/nested`)),
  lost: await loses(),
  tried: (await new Mutex(session, `${closing}/tried`).tryLock())?.held,
};
const { same, adopted } = await adopts();
const sessions = [session, adopted, await cluster.session()];
const leases = sessions.map(({ leaseId }) => leaseId.toString());
if (closing === "nothing") console.log(JSON.stringify({ leases }));
if (closing === "session") await Promise.all(sessions.map((each) => each.close({ drainMs: 0 })));
if (closing === "cluster") await cluster.close({ drainMs: 0 });
process.on("exit", () => console.log(JSON.stringify({ ...done, same, leases, complaints })));
