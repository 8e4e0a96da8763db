// @ts-check
// A cron job that runs once across replicas. Every replica has the same line, and one of them runs the command:
//   0 2 * * *  node nightly.js backup ./backup.sh
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Etcd3 } from "etcd3";
import { connect, Mutex, whileHeld } from "leasehold";

const { ETCD_HOSTS = "http://127.0.0.1:2379", TTL_SECONDS = "15" } = process.env;
const [job = "", command = "", ...args] = process.argv.slice(2);
// In the time zone of this machine, by which cron goes: the date in UTC can be that of two nights. In Sweden's form, 2026-03-01.
const today = new Date().toLocaleDateString("sv-SE");
// Not under `jobs/${job}/`: that is the queue of the lock.
const mark = `jobs-done/${job}`;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const etcd = new Etcd3({ hosts: [...cluster.hosts] });
try {
  // Waits in the queue, because the replica that runs the job may die of it; use `tryLock` if a night may then be
  // skipped.
  await new Mutex(cluster, `jobs/${job}`).withLock(async (lock) => {
    // The lock alone admits a replica whose clock is late: the mark shows it that this night's job is done.
    const done = await etcd.get(mark).string();
    if (done !== null && done >= today) return console.log(`${job} was done for ${done}`);
    await run(lock.signal);
    const put = etcd.put(mark).value(today);
    const { succeeded } = await etcd
      .if(...whileHeld(lock))
      .then(put)
      .commit();
    if (!succeeded) throw new Error(`Lost the lock while ${job} ran: another replica may have run it, too`);
    console.log(`${job} is done for ${today}`);
  });
} finally {
  etcd.close();
  await cluster.close();
}

/** Rejects when the command fails, and when the lock is lost, which ends the command. @param {AbortSignal} signal */
async function run(signal) {
  const [code] = await once(spawn(command, args, { stdio: "inherit", signal }), "exit");
  if (code !== 0) throw new Error(`${command} ended with ${code}`);
}
