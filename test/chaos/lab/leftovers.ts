import { setTimeout as delay } from "node:timers/promises";
import { decode, encode, endOf } from "../../support/gateway-text.js";
import type { Ground } from "./ground.js";

/** What a run left in etcd: keys under its prefix, and leases that were not there before. */
export class Leftovers {
  readonly #ground: Ground;
  readonly #prefix: string;
  readonly #baseline: readonly string[];

  static async start(ground: Ground, prefix: string): Promise<Leftovers> {
    return new Leftovers(ground, prefix, await leasesOf(ground));
  }

  constructor(ground: Ground, prefix: string, baseline: readonly string[]) {
    this.#ground = ground;
    this.#prefix = prefix;
    this.#baseline = baseline;
  }

  /** Waits until no lease is left. etcd tells nobody when one ends that had no keys: this has to ask again. */
  async found(timeoutMs: number): Promise<{ keys: string[]; leases: string[] }> {
    const until = performance.now() + timeoutMs;
    for (;;) {
      const leases = (await leasesOf(this.#ground)).filter((lease) => !this.#baseline.includes(lease));
      if (leases.length === 0 || performance.now() > until) return { keys: await this.#keys(), leases };
      await delay(100);
    }
  }

  async #keys(): Promise<string[]> {
    const range = { key: encode(this.#prefix), range_end: encode(endOf(this.#prefix)), keys_only: true };
    const leader = await this.#ground.leader();
    const { kvs = [] } = (await leader.gateway("/v3/kv/range", range)) as { kvs?: { key: string }[] };
    return kvs.map(({ key }) => decode(key));
  }
}

async function leasesOf(ground: Ground): Promise<string[]> {
  const leader = await ground.leader();
  const { leases = [] } = (await leader.gateway("/v3/lease/leases", {})) as { leases?: { ID: string }[] };
  return leases.map(({ ID }) => BigInt(ID).toString(16));
}
