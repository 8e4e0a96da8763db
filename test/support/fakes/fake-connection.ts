import { checkConnect } from "../../../src/base/options/connect.js";
import {
  newClusterState,
  type ClusterState,
  type EtcdServices,
} from "../../../src/lock/session/connection.js";
import { EtcdClient } from "../../../src/etcd/client.js";
import type { Header } from "../../../src/etcd/port.js";
import { Lease } from "../../../src/lock/session/lease.js";
import type { StartThread } from "../../../src/alive/threaded-keepalive.js";
import { FakeClock } from "./fake-clock.js";
import { type FakeCall, FakeMember } from "./fake-member.js";

export const HEADER: Header = { clusterId: "1", revision: 100n, memberId: "a", raftTerm: 3n };
export const LEASE_ID = 0x77n;

/** Everything inside a cluster, with fake members `a`, `b` and `c` instead of etcd, and a fake clock. */
export class FakeCluster {
  readonly clock = new FakeClock();
  /** One for each connection, in the order of connecting. */
  readonly connected: FakeMember[] = [];
  /** Called for every call when it is sent; may answer it synchronously. */
  onCall: (call: FakeCall, host: string) => void = () => {};
  /** Of members that are connected from now on. */
  reachable = true;
  /** Hosts for which the test itself answers the probe whether they are etcd itself. */
  unknown: readonly string[] = [];
  /** What new members load. */
  loading: Promise<unknown> | undefined;
  readonly client: EtcdClient;
  readonly state: ClusterState;
  readonly services: EtcdServices;

  /** `startThread`: for `renewal: "worker"`. */
  constructor(options: Readonly<Record<string, unknown>> = {}, startThread?: StartThread) {
    const given = { hosts: ["a:1", "b:1", "c:1"], ...options };
    // Short names, as the tests have them, in place of the normal form.
    const checked = { ...checkConnect(given), hosts: [given.hosts].flat() };
    this.client = new EtcdClient(checked, this.clock, (host) => {
      const memberId = host.slice(0, 1);
      const header = { ...HEADER, memberId };
      const member = new FakeMember(host, this.clock, header, (call) => this.onCall(call, host));
      member.reachable = this.reachable;
      member.loading = this.loading;
      member.direct = !this.unknown.includes(host);
      this.connected.push(member);
      return member;
    });
    this.state = newClusterState(checked, this.client, { clock: this.clock, startThread });
    this.services = this.state.services;
  }

  /** The most recent connection. */
  get member(): FakeMember {
    const member = this.connected.at(-1);
    if (!member) throw new Error("nothing was asked yet");
    return member;
  }

  /** A lease that has just been granted. */
  lease(ttlSeconds = 10): Lease {
    return new Lease(this.state, { leaseId: LEASE_ID, ttlSeconds, sent: this.clock.now() }, "owner");
  }
}
