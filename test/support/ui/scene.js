// Locks and elections that look like those of a real system, for pictures and for tests of the page.
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { connect, Election, Mutex, RwLock, Semaphore, Session } from "leasehold";

/** Starts clients of these names. @param {readonly string[]} hosts */
export class Scene {
  /** @type {import("leasehold").Cluster[]} */
  #clusters = [];
  #stop = new AbortController();
  /** @type {Promise<unknown>[]} */
  #work = [];

  /** @param {readonly string[]} hosts */
  constructor(hosts) {
    this.hosts = hosts;
  }

  /** @param {string} owner */
  client(owner) {
    const cluster = connect({ hosts: [...this.hosts], session: { ttlSeconds: 15, owner } });
    this.#clusters.push(cluster);
    return cluster;
  }

  /** Waits for the lock and holds it until the end. @param {string} owner @param {string} name */
  hold(owner, name) {
    const { signal } = this.#stop;
    return this.#begin(new Mutex(this.client(owner), name).lock({ signal }));
  }

  /** Takes it again and again. @param {string} owner @param {string} name @param {number} ms */
  cycle(owner, name, ms) {
    const { signal } = this.#stop;
    const mutex = new Mutex(this.client(owner), name);
    this.#begin(
      (async () => {
        while (!signal.aborted)
          await mutex.withLock(() => delay(ms, undefined, { signal }), { signal }).catch(() => {});
      })(),
    );
  }

  /** Holds it, and dies: its lease expires after two seconds. @param {string} owner @param {string} name */
  async die(owner, name) {
    const cluster = this.client(owner);
    const session = await Session.open(cluster, { ttlSeconds: 2, owner });
    const lock = await new Mutex(session, name).lock();
    await session.orphan();
    return lock;
  }

  /** @template T @param {Promise<T>} work @returns {Promise<T>} */
  #begin(work) {
    this.#work.push(work);
    work.catch(() => {});
    return work;
  }

  /** A few kinds of everything. */
  async fill() {
    const names = ["invoices/2026-11", "reports/daily", "search/reindex", "thumbnails/eu", "thumbnails/us"];
    await Promise.all(names.map((name, n) => this.hold(`batch-${n + 1}.internal:${4120 + n}`, name)));
    const web = ["web-1.internal:311", "web-2.internal:298", "web-3.internal:305", "web-4.internal:302"];
    await this.hold(web[0] ?? "", "accounts/17/transfer");
    for (const owner of web.slice(1)) void this.hold(owner, "accounts/17/transfer");
    const { signal } = this.#stop;
    for (const owner of ["sched-a:77", "sched-b:81", "sched-c:64"])
      void this.#begin(new Election(this.client(owner), "scheduler").campaign(owner, { signal }));
    for (const owner of ["api-1:90", "api-2:91"])
      void this.#begin(new RwLock(this.client(owner), "config").readLock({ signal }));
    for (let n = 1; n <= 5; n++)
      void this.#begin(new Semaphore(this.client(`export-${n}:50${n}`), "exports", 3).acquire({ signal }));
    await this.die("worker-d.internal:9120", "jobs/nightly");
    for (const [n, letter] of ["a", "b", "c", "e"].entries())
      this.cycle(`worker-${letter}.internal:91${n}1`, "jobs/nightly", 1500 + 700 * n);
  }

  async end() {
    this.#stop.abort();
    await Promise.all(this.#clusters.map((cluster) => cluster.close({ drainMs: 0 })));
    await Promise.allSettled(this.#work);
  }
}

/** `lockPage` on a server of its own. @param {import("node:http").Server} server @param {number} [port] */
export async function listen(server, port = 0) {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  return typeof address === "object" && address ? address.port : 0;
}
