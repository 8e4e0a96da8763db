import type { EtcdMember } from "../../support/etcd.js";
import type { PeerNetwork } from "../../support/peer-network.js";
import type { FaultKind, Field, Ground } from "../lab/ground.js";
import { anyLength } from "../lab/schedule.js";

/** A ground whose members reach each other through proxies of ours. */
export interface Peered extends Ground {
  readonly peers: PeerNetwork;
}

/** The member is cut off from its peers, both ways; its clients still reach it. */
const isolate = (who: string, choose: (field: Field<Peered>) => Promise<EtcdMember>): FaultKind<Peered> => ({
  name: `isolate-${who}`,
  effect: "hinders",
  // A member that has no leader says so after some seconds, an election takes one or two.
  lasts: (random, ttlMs) => (random.chance(0.5) ? anyLength(random, ttlMs) : random.between(4000, 9000)),
  async inflict(field) {
    const { ground } = field;
    const member = await choose(field);
    await ground.peers.cutOff(ground.members, member);
    return { target: member.name, heal: () => ground.peers.heal() };
  },
});

export const peerFaults: readonly FaultKind<Peered>[] = [
  isolate("leader", ({ ground }) => ground.leader()),
  isolate("follower", async ({ ground, random }) => {
    const leader = await ground.leader();
    return random.pick(ground.members.filter((member) => member !== leader));
  }),
];
