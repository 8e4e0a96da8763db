// @ts-check
// A restart that keeps the lock: on SIGTERM, the process stops its work and leaves its lease, by a ticket, to the next one,
// which goes on with the same fence. Waiters stay waiters. If the restart takes longer than the TTL, they get the lock.
import { once } from "node:events";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { connect, isLeaseholdError, Mutex, Session } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "30" } = process.env;
// In a folder that the next process sees, too.
const { TICKET = "gateway.lease" } = process.env;
const mine = `${TICKET}.${process.pid}`;

const stop = new AbortController();
process.once("SIGTERM", () => stop.abort());
const cluster = connect({ hosts: ETCD_HOSTS.split(",") });
const session = (await adopted()) ?? (await Session.open(cluster, { ttlSeconds: Number(TTL_SECONDS) }));
try {
  const lock = await new Mutex(session, "gateway/primary").lock({ signal: stop.signal });
  console.log(`holding with fence ${lock.fence}`);
  await work(lock.signalWith(stop.signal));
  lock.assertHeld();
  await leave();
} catch (error) {
  if (error !== stop.signal.reason) throw error; // else stopped while it waited: the close leaves the queue
} finally {
  await cluster.close();
}

/** Until it is told to stop. @param {AbortSignal} signal */
async function work(signal) {
  if (!signal.aborted) await once(signal, "abort");
}

async function leave() {
  const leaseId = await session.orphan();
  // No reader sees a part of the file.
  await writeFile(mine, String(leaseId));
  await rename(mine, TICKET);
}

/** undefined: there is no ticket, or its lease has ended. */
async function adopted() {
  try {
    // Of several processes, one gets the ticket: two that adopt one lease would both hold.
    await rename(TICKET, mine);
    const leaseId = BigInt(await readFile(mine, "utf8"));
    await rm(mine);
    return await Session.adopt(cluster, leaseId);
  } catch (error) {
    if (isLeaseholdError(error, "SESSION_LOST")) return undefined;
    if (/** @type {NodeJS.ErrnoException} */ (error).code === "ENOENT") return undefined;
    throw error;
  }
}
