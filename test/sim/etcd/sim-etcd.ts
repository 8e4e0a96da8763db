import type { Scheduler } from "../kernel/kernel.js";
import type { Random } from "../kernel/random.js";
import { Leases } from "./leases.js";
import { SimEtcdServer } from "./server.js";
import { quirksOf, type Quirks } from "./quirks.js";
import { Store } from "./store.js";
import type { SimServer, SimVersion } from "./types.js";
import { Watches } from "./watch/watches.js";

export interface SimEtcdOptions {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly version: SimVersion;
  readonly quirks?: Partial<Quirks>;
}

/** A simulated etcd cluster of one member. */
export class SimEtcd {
  readonly members: readonly SimServer[];
  /** The truth: the keys, and each change since the start. */
  readonly store = new Store();
  readonly leases: Leases;
  readonly #watches: Watches;

  constructor({ scheduler, random, version, quirks: changed }: SimEtcdOptions) {
    const quirks = { ...quirksOf(version), ...changed };
    const { store } = this;
    this.leases = new Leases({ store, scheduler, random: random.fork("leases") });
    const watches = (this.#watches = new Watches({
      store,
      scheduler,
      quirks,
      random: random.fork("watches"),
    }));
    const clusterId = random.fork("cluster").id().toString();
    const memberId = random.fork("member 1").id().toString();
    const shared = { store, leases: this.leases, quirks, clusterId, watches, scheduler };
    const state = { ...shared, random: random.fork("watch streams") };
    this.members = [new SimEtcdServer("http://etcd-1:2379", memberId, state)];
  }
  /** How many watches its clients have. */
  get watches(): number {
    return this.#watches.size;
  }
}
