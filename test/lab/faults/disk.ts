import type { EtcdMember } from "../../support/etcd/etcd.js";
import { SlowDisk } from "../../support/servers/strace.js";
import type { FaultKind, Ground } from "../runner/ground.js";
import { follower, leader, type Choose } from "./choose.js";

/** A ground whose members are processes on this machine. */
export interface OnDisk extends Ground {
  readonly members: readonly EtcdMember[];
}

/** From delays that occur on a busy disk to delays that make the others elect another leader. */
const slow = (who: string, choose: Choose): FaultKind<OnDisk> => ({
  name: `slow-disk-${who}`,
  effect: "hinders",
  lasts: (random, ttlMs) => random.between(ttlMs, 3 * ttlMs),
  async inflict(field) {
    const chosen = await choose(field);
    const member = field.ground.members.find((one) => one === chosen);
    if (member === undefined) return undefined;
    const disk = await SlowDisk.of(member.pid, field.random.between(400, 3000));
    return { target: member.name, heal: () => disk.end() };
  },
});

export const diskFaults: readonly FaultKind<OnDisk>[] = [slow("leader", leader), slow("follower", follower)];
