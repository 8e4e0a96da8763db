import { setTimeout as delay } from "node:timers/promises";
import { decode, encode, endOf } from "../../support/clients/gateway-text.js";
import { isNobodys } from "./delay-keys.js";
import type { Ground } from "./ground.js";
import { untilAnswered } from "./patience.js";

/** A client keeps an unused watch for five seconds: this is twice that. */
const WATCHES_END_MS = 10_000;
/** Sessions have shorter ones. */
const LONG_LEASE_SECONDS = 600;

/** What a run left in etcd: keys under its prefix, leases that were not there before, and watches. */
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

  /** Waits until no lease is left. etcd sends no event when a lease without keys ends, so this has to poll. */
  async found(timeoutMs: number): Promise<{ keys: string[]; leases: string[] }> {
    const until = performance.now() + timeoutMs;
    for (;;) {
      const added = (await leasesOf(this.#ground)).filter((lease) => !this.#baseline.includes(lease));
      const leases = await shortOf(this.#ground, added);
      if (leases.length === 0 || performance.now() > until) return { keys: await this.#keys(), leases };
      await delay(100);
    }
  }

  /** Waits until no watch is left beyond `own`. undefined: this ground cannot count watches. */
  async watches(own: number): Promise<number | undefined> {
    const { watches } = this.#ground;
    if (watches === undefined) return undefined;
    const until = performance.now() + WATCHES_END_MS;
    for (;;) {
      const left = (await untilAnswered(watches)) - own;
      if (left <= 0 || performance.now() > until) return Math.max(left, 0);
      await delay(100);
    }
  }

  async #keys(): Promise<string[]> {
    const range = { key: encode(this.#prefix), range_end: encode(endOf(this.#prefix)), keys_only: true };
    type Found = { kvs?: { key: string; lease?: string }[] };
    const { kvs = [] } = await askLeader<Found>(this.#ground, "/v3/kv/range", range);
    const found = kvs.map(({ key, lease = "0" }) => ({ key: decode(key), lease }));
    return found.flatMap((kv) => (isNobodys(kv) ? [] : [kv.key]));
  }
}

/** By design, these outlive every process: the leases of runs of `once` that have begun, of latches, and of what barriers remember. */
async function shortOf(ground: Ground, leases: readonly string[]): Promise<string[]> {
  const short: string[] = [];
  for (const lease of leases) {
    const ID = BigInt(`0x${lease}`).toString();
    const { grantedTTL = "0" } = await askLeader<{ grantedTTL?: string }>(ground, "/v3/lease/timetolive", {
      ID,
    });
    if (Number(grantedTTL) < LONG_LEASE_SECONDS) short.push(lease);
  }
  return short;
}

async function leasesOf(ground: Ground): Promise<string[]> {
  const { leases = [] } = await askLeader<{ leases?: { ID: string }[] }>(ground, "/v3/lease/leases", {});
  return leases.map(({ ID }) => BigInt(ID).toString(16));
}

/** Asks the current leader: at the end of a run the last fault may just have ended. */
export const askLeader = <Answer>(ground: Ground, path: string, body: object): Promise<Answer> =>
  untilAnswered(async () => (await (await ground.leader()).gateway(path, body)) as Answer);
