// Queues of many locks, put as plain keys on a few leases: 6,000 clients would load the machine more than what is measured.
import { setTimeout as delay } from "node:timers/promises";
import { Etcd3, type Lease } from "etcd3";

export interface RawSetting {
  readonly prefix: string;
  readonly locks: number;
  readonly waiters: number;
}

const BATCH = 100;
const LEASES = 20;

export class RawQueues {
  readonly #queues: string[][];
  #next = 0;

  private constructor(
    private readonly etcd: Etcd3,
    private readonly leases: readonly Lease[],
    private readonly ids: readonly string[],
    private readonly setting: RawSetting,
  ) {
    this.#queues = Array.from({ length: setting.locks }, () => []);
  }

  static async fill(hosts: readonly string[], setting: RawSetting): Promise<RawQueues> {
    const etcd = new Etcd3({ hosts: [...hosts] });
    const leases = Array.from({ length: LEASES }, () => etcd.lease(120));
    const ids = await Promise.all(leases.map((lease) => lease.grant()));
    const queues = new RawQueues(etcd, leases, ids, setting);
    for (let place = 0; place <= setting.waiters; place++)
      for (let n = 0; n < setting.locks; n += BATCH)
        await Promise.all(Array.from({ length: BATCH }, (_, i) => queues.#join(n + i)));
    return queues;
  }

  /** Resolves with how many it made: a holder leaves and joins again, at the end. */
  async handOver(perSecond: number, forMs: number): Promise<number> {
    const start = performance.now();
    let made = 0;
    for (; performance.now() - start < forMs; made++) {
      const queue = (made * 7) % this.setting.locks;
      const key = this.#queues[queue]?.shift();
      if (key !== undefined) await this.etcd.delete().key(key);
      await this.#join(queue);
      await delay(Math.max(0, start + (1000 * made) / perSecond - performance.now()));
    }
    return made;
  }

  async close(): Promise<void> {
    await Promise.all(this.leases.map((lease) => lease.revoke()));
    this.etcd.close();
  }

  async #join(queue: number): Promise<void> {
    const n = this.#next++;
    const [lease, id] = [this.leases[n % LEASES], this.ids[n % LEASES]];
    const key = `${this.setting.prefix}${String(queue).padStart(4, "0")}/${BigInt(id ?? 0).toString(16)}-${n + 2}`;
    const value = { owner: `client-${n}`, since: new Date().toISOString(), id: String(n) };
    await lease?.put(key).value(JSON.stringify(value));
    this.#queues[queue]?.push(key);
  }
}
