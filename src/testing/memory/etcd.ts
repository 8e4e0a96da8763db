import type { Header } from "../../etcd/port.js";
import type { Scheduler } from "./event-queue.js";
import { AccessControl, Quota } from "./access.js";
import { Leases } from "./leases.js";
import type { SimServer, SimVersion } from "./protocol.js";
import { type AuthQuirks, type Quirks, authQuirksOf, quirksOf } from "./quirks.js";
import { Cluster } from "./raft/cluster.js";
import { MemberProcess } from "./raft/member-process.js";
import { RaftMember } from "./raft/raft-member.js";
import type { Random } from "./random.js";
import { SimEtcdServer, solo } from "./server.js";
import { Store } from "./store.js";
import { type Applied, type Replica, apply } from "./txn.js";
import { type AuthOptions, AuthStore } from "./users.js";
import { Watches } from "./watches.js";

export interface SimEtcdOptions {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly version: SimVersion;
  readonly quirks?: Partial<Quirks & AuthQuirks>;
  /** Users and roles. Default: authentication is disabled. */
  readonly auth?: AuthOptions | undefined;
  /** How many there are: 1, 3 or 5. Default: 1. */
  readonly members?: number;
  /** At most, for one way between two members. Default: up to 1 ms. */
  readonly peerLatencyMs?: number | undefined;
  /** How often late watches are served, and full buffers tried again, instead of etcd's 100 and 10 ms. */
  readonly loopMs?: number | undefined;
  /**
   * It compacts by itself, and leaves the last changes of keys: at least so many, and a fifth more at most. A value counts as one
   * more for each 4 KiB. Default: it keeps all.
   */
  readonly keptChanges?: number | undefined;
  /** How often other requests come in the middle of the creation of a watch. Default: far more often than with a real etcd. */
  readonly race?: number | undefined;
  /** Told when a member takes leases for expired, and begins to revoke them. */
  readonly onExpiry?: ((member: number, leaseIds: readonly bigint[]) => void) | undefined;
}

/** A simulated etcd cluster. */
export class SimEtcd {
  readonly members: readonly SimServer[];
  /** The truth: the keys as of the last committed entry, and each change since the start. */
  readonly store = new Store();
  /** Those that exist as of the last committed entry. Of several members, only the leader knows when they expire. */
  readonly leases: Leases;
  readonly quirks: Quirks & AuthQuirks;
  /** Users and roles, for all members. */
  readonly auth: AuthStore;
  /** Counts as used up on all members at once. */
  readonly quota: Quota;
  /** What the only member lets pass; of several members, what decides when an entry is committed. */
  readonly access: AccessControl;
  /** Of several members. */
  readonly cluster: Cluster | undefined;
  readonly #servers: readonly SimEtcdServer[];
  /** Of the only member. */
  readonly #process: MemberProcess;
  readonly #watches: Watches[] = [];
  readonly #clusterId: string;

  constructor(private readonly options: SimEtcdOptions) {
    const { scheduler, random, version, quirks: changed, members = 1 } = options;
    const quirks = (this.quirks = { ...quirksOf(version), ...authQuirksOf(version), ...changed });
    const { store } = this;
    this.quota = new Quota(quirks);
    this.auth = new AuthStore({ scheduler, random: random.fork("tokens"), auth: options.auth });
    this.#clusterId = random.fork("cluster").id().toString();
    this.#process = new MemberProcess(scheduler);
    const onExpiry = (leaseIds: readonly bigint[]): void => options.onExpiry?.(0, leaseIds);
    const decides = members === 1 ? { scheduler: this.#process, onExpiry } : { scheduler, expired: () => {} };
    this.leases = new Leases({ store, random: random.fork("leases"), ...decides });
    const truth = { store, leases: this.leases, quirks };
    this.access = this.#newAccess(truth, scheduler);
    if (members === 1) this.#servers = [this.#only(truth)];
    else {
      const { peerLatencyMs } = options;
      const raft = { scheduler, random: random.fork("raft"), size: members, quirks, peerLatencyMs };
      this.cluster = new Cluster({ ...raft, truth, access: this.access });
      this.#servers = this.cluster.nodes.map(({ index }) => this.#oneOf(this.cluster!, index, quirks));
      this.cluster.found();
    }
    this.members = [...this.#servers];
    if (options.keptChanges !== undefined) this.#compactBeyond(options.keptChanges);
  }

  get version(): SimVersion {
    return this.options.version;
  }

  /** How many unary calls have arrived at its members. */
  get calls(): number {
    let sum = 0;
    for (const { calls } of this.#servers) sum += calls;
    return sum;
  }

  /** How many watches its clients have. */
  get watches(): number {
    let sum = 0;
    for (const { size } of this.#watches) sum += size;
    return sum;
  }

  /** Of an answer that a member makes now. */
  header(index: number): Header {
    return this.#servers[index]!.header();
  }

  /** The member that leads, as another one knows it. */
  leaderOf(index: number): number | undefined {
    return this.cluster ? this.cluster.nodes[index]!.lead?.index : 0;
  }

  /** How long a lease has left, by the member that decides. `undefined`: no leader counts its time, or there is no such lease. */
  remainingMs(leaseId: bigint): number | undefined {
    const leases = this.cluster ? this.cluster.leader?.leases : this.leases;
    const lease = leases?.all.find((each) => each.leaseId === leaseId);
    if (lease === undefined || lease.expiry === Infinity) return undefined;
    return Math.max(0, lease.expiry - this.options.scheduler.now);
  }

  /**
   * As an administrator does it: at once. Returns `undefined` if there is no leader with a majority, else the result. `applied` is
   * called in between: the leader may commit what others have asked for before and after it.
   */
  execute(request: Applied, applied?: () => void): object | undefined {
    if (this.cluster) return this.cluster.execute(request, applied);
    const result = apply({ store: this.store, leases: this.leases, quirks: this.quirks }, request);
    applied?.();
    return result;
  }

  /** A member stops with its connections open. */
  pause(index: number): void {
    if (this.cluster) this.cluster.pause(index);
    else this.#process.pause();
  }

  resume(index: number): void {
    if (this.cluster) this.cluster.resume(index);
    else this.#process.resume();
  }

  /** The process of a member ends, and with it its streams and all that waited for an answer. */
  kill(index: number): void {
    if (this.cluster) this.cluster.kill(index);
    else {
      this.#process.kill();
      this.leases.demote();
    }
    this.#servers[index]?.killed();
  }

  restart(index: number): void {
    this.#watches[index]?.restarted();
    this.#servers[index]?.restarted();
    if (this.cluster) return this.cluster.restart(index);
    this.#process.restart();
    this.#process.ready();
    this.leases.promote(0);
  }

  /** As `--auto-compaction-mode=revision`. Without a leader, the next change tries again. */
  #compactBeyond(changes: number): void {
    let isDue = false;
    this.store.onChange(() => {
      if (isDue || this.store.weight < 1.2 * changes) return;
      isDue = true;
      this.options.scheduler.after(0, () => {
        isDue = false;
        this.execute({ kind: "compact", revision: this.store.revisionBefore(changes) });
      });
    });
  }

  #only(replica: Replica): SimEtcdServer {
    const process = this.#process;
    const { random } = this.options;
    const { access } = this;
    const consensus = solo(replica.leases, (request, info) => {
      const run = (): object => apply(replica, request as Applied);
      return info ? access.apply(request, info, run) : run();
    });
    const watches = this.#newWatches(replica, process, random.fork("watches"));
    const memberId = random.fork("member 1").id().toString();
    const { race } = this.options;
    const shared = { ...replica, access, clusterId: this.#clusterId, memberId, watches, race };
    const rest = { scheduler: process, random: random.fork("watch streams"), process, consensus };
    return new SimEtcdServer("http://etcd-1:2379", { ...shared, ...rest });
  }

  #oneOf(cluster: Cluster, index: number, quirks: Quirks): SimEtcdServer {
    const name = `member ${index + 1}`;
    const memberId = this.options.random.fork(name).id().toString();
    const random = this.options.random.fork(`${name} state`);
    const process = new MemberProcess(this.options.scheduler);
    const store = new Store();
    const leases = new Leases({
      ...{ store, scheduler: process, random: random.fork("leases") },
      expired: (leaseIds) => cluster.members[index]!.revokeExpired(leaseIds),
      onExpiry: (leaseIds) => this.options.onExpiry?.(index, leaseIds),
    });
    const replica = { store, leases, quirks };
    const { peers, nodes, members } = cluster;
    const member = new RaftMember({
      ...{ node: nodes[index]!, peers, process, replica, random: random.fork("requests") },
      at: (place) => members[place]!,
    });
    members.push(member);
    const watches = this.#newWatches(replica, process, random.fork("watches"));
    const access = this.#newAccess(replica, process);
    const { race } = this.options;
    const shared = { ...replica, access, clusterId: this.#clusterId, memberId, watches, race };
    const rest = { scheduler: process, random: random.fork("watch streams"), process, consensus: member };
    return new SimEtcdServer(`http://etcd-${index + 1}:2379`, { ...shared, ...rest });
  }

  #newAccess({ leases }: Replica, scheduler: Scheduler): AccessControl {
    const { auth, quota, quirks } = this;
    return new AccessControl({ auth, quota, quirks, leases, scheduler });
  }

  #newWatches({ store, quirks }: Replica, process: MemberProcess, random: Random): Watches {
    const watches = new Watches({ store, scheduler: process, quirks, random, loopMs: this.options.loopMs });
    this.#watches.push(watches);
    return watches;
  }
}
