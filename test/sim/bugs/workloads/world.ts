import { Kernel } from "../../kernel/kernel.js";
import type { Random } from "../../../../src/testing/memory/random.js";
import type { AuthOptions } from "../../../../src/testing/memory/users.js";
import { SimEtcd } from "../../../../src/testing/memory/etcd.js";
import type { SimServer, SimVersion } from "../../../../src/testing/memory/protocol.js";
import { CALM, type LinkProfile } from "../../../../src/testing/memory/network/link.js";
import { SimNode } from "../../node/sim-node.js";
import type { Build } from "../../run/build.js";

const VERSIONS: readonly SimVersion[] = ["3.4", "3.5", "3.6", "3.7"];
const REQUEST_TIMEOUT_MS = 1000;
/** The virtual time in which a workload must end. */
const LIMIT_MS = 600_000;

/** The etcd that a workload needs. Default: one member, of a version that the seed chooses. */
export interface EtcdSetting {
  readonly members?: number;
  readonly version?: SimVersion;
  readonly auth?: AuthOptions;
  /** With which the processes log in. */
  readonly user?: { readonly username: string; readonly password: string };
}

/** A simulated etcd and the processes of one workload, for calls that the lab's lanes do not make. */
export class World {
  readonly kernel: Kernel;
  readonly random: Random;
  readonly etcd: SimEtcd;
  readonly ttlSeconds: number;
  /** One sentence per violation, by invariant. */
  readonly broken = new Map<string, string[]>();
  readonly #nodes: SimNode[] = [];

  constructor(
    readonly seed: number,
    readonly build: Build,
    private readonly setting: EtcdSetting = {},
  ) {
    this.kernel = new Kernel(String(seed));
    this.random = this.kernel.random.fork("workload");
    this.ttlSeconds = this.random.pick([2, 3, 5, 10]);
    const version = this.random.pick(VERSIONS);
    const random = this.kernel.random.fork("etcd");
    this.etcd = new SimEtcd({ scheduler: this.kernel, random, version, ...setting });
  }

  get leasehold(): Build["leasehold"] {
    return this.build.leasehold;
  }

  /** A process. `servers`: what its links lead to; default: the members. */
  node(name: string, servers: readonly SimServer[] = this.etcd.members): SimNode {
    const { kernel, ttlSeconds, build } = this;
    const { user } = this.setting;
    const node = new SimNode({
      ...{ name, servers, scheduler: kernel, random: kernel.random.fork("nodes") },
      options: { requestTimeoutMs: REQUEST_TIMEOUT_MS, session: { ttlSeconds }, ...(user && { auth: user }) },
      createCluster: build.createCluster,
    });
    this.#nodes.push(node);
    return node;
  }

  /** Virtual time passes. */
  readonly sleep = (ms: number): Promise<void> =>
    new Promise((resolve) => this.kernel.after(ms, () => resolve()));

  expect(holds: boolean, invariant: string, sentence: string): void {
    if (holds) return;
    const sentences = this.broken.get(invariant) ?? [];
    this.broken.set(invariant, [...sentences, `${sentence} (at ${this.kernel.now.toFixed(1)} ms)`]);
  }

  /** The keys of a prefix, as etcd has them. */
  keys(prefix: string): readonly string[] {
    return this.etcd.store.keys.map(({ key }) => key.toString()).filter((key) => key.startsWith(prefix));
  }

  /** As an administrator does. */
  deleteKey(key: string): void {
    const { store } = this.etcd;
    store.write(() => store.delete(key));
  }

  /** Changes the links of a process for a while. */
  async hinder(node: SimNode, profile: Partial<LinkProfile>, ms: number): Promise<void> {
    for (const link of node.links) link.profile = { ...CALM, ...profile };
    await this.sleep(ms);
    for (const link of node.links) link.profile = CALM;
  }

  async cut(node: SimNode, ms: number): Promise<void> {
    for (const link of node.links) link.set("cut");
    await this.sleep(ms);
    for (const link of node.links) link.set("up");
  }

  async close(): Promise<void> {
    await Promise.all(this.#nodes.map((node) => node.cluster.close({ drainMs: 0 })));
  }

  /** Runs the workload in virtual time, until it ends. */
  async run(workload: Workload): Promise<void> {
    let over = false;
    const ended = (error?: unknown): void => {
      over = true;
      if (error !== undefined) this.expect(false, "ends well", (error as Error).message);
    };
    this.kernel.after(0, () => void workload(this).then(() => ended(), ended));
    await this.kernel.run(() => over, LIMIT_MS);
    this.expect(over, "ends", "a call of the workload was never settled");
  }
}

/** Calls of a user, with what the documentation promises about them. */
export interface Workload {
  (world: World): Promise<void>;
  readonly etcd?: EtcdSetting;
}
