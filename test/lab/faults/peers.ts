import type { PeerNetwork } from "../../support/proxies/peer-network.js";
import type { FaultKind, Ground } from "../runner/ground.js";
import { pastElections } from "../runner/schedule.js";
import { follower, leader, type Choose } from "./choose.js";

/** A ground whose members reach each other through our proxies. */
export interface Peered extends Ground {
  readonly peers: PeerNetwork;
}

/** The member is cut off from its peers in both directions; its clients still reach it. */
const isolate = (who: string, choose: Choose): FaultKind<Peered> => ({
  name: `isolate-${who}`,
  effect: "hinders",
  endsStreams: true,
  lasts: pastElections,
  async inflict(field) {
    const { ground } = field;
    const member = await choose(field);
    await ground.peers.cutOff(ground.members, member);
    return { target: member.name, heal: () => ground.peers.heal() };
  },
});

export const peerFaults: readonly FaultKind<Peered>[] = [
  isolate("leader", leader),
  isolate("follower", follower),
];
