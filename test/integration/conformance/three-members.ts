import { afterAll, beforeAll, beforeEach, vi } from "vitest";
import { type EtcdCluster, type EtcdMember, startEtcd } from "../../support/etcd/etcd.js";
import { PeerNetwork } from "../../support/proxies/peer-network.js";
import { placesOf } from "../../support/clients/server-view.js";

/** A cluster of three for a file of tests, fully restored before each of them. */
export interface ThreeMembers {
  etcd: EtcdCluster;
  readonly network: PeerNetwork;
  /** Undoes everything that was done to the members; resolves when each serves. */
  readonly heal: () => Promise<void>;
  readonly follower: () => Promise<EtcdMember>;
}

/** Filled before the first test of the file runs. */
export function threeMembers(): ThreeMembers {
  const network = new PeerNetwork();
  const heal = async (): Promise<void> => {
    for (const member of three.etcd.members) member.resume();
    for (const member of three.etcd.members) if (!member.running) await member.restart();
    await network.heal();
    // A quorum read.
    for (const member of three.etcd.members) await vi.waitFor(() => placesOf(member, "any"), 15_000);
  };
  const follower = async (): Promise<EtcdMember> => {
    const leader = await three.etcd.leader();
    return three.etcd.members.find((member) => member !== leader)!;
  };
  const three = { network, heal, follower } as ThreeMembers;
  beforeAll(
    async () => void (three.etcd = await startEtcd({ members: 3, peerUrl: network.peerUrl })),
    60_000,
  );
  afterAll(async () => {
    await three.etcd.stop();
    await network[Symbol.asyncDispose]();
  });
  beforeEach(heal);
  return three;
}
