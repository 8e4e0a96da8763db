import type { ContainerMember } from "../../support/etcd/container-member.js";
import type { FaultKind, Ground } from "../runner/ground.js";
import { moment, pastElections } from "../runner/schedule.js";
import { follower, leader, type Choose } from "./choose.js";

/** A ground whose members are containers. */
export interface Contained extends Ground {
  readonly members: readonly ContainerMember[];
}

interface Hit {
  readonly name: string;
  readonly choose: Choose;
  readonly lasts: FaultKind["lasts"];
  readonly hit: (member: ContainerMember) => Promise<void>;
  readonly heal?: (member: ContainerMember) => Promise<void>;
}

const onContainer = ({ name, choose, lasts, hit, heal }: Hit): FaultKind<Contained> => ({
  ...{ name, effect: "hinders" as const, ...(lasts && { lasts }) },
  async inflict(field) {
    const chosen = await choose(field);
    const member = field.ground.members.find((one) => one === chosen);
    if (member === undefined) return undefined;
    await hit(member);
    return { target: member.name, heal: () => heal?.(member) };
  },
});

/** The member leaves the network of its peers and loses its address there; its clients still reach it. */
const disconnect = (who: string, choose: Choose) =>
  onContainer({
    ...{ name: `disconnect-${who}`, choose, lasts: pastElections },
    hit: (member) => member.disconnect(),
    heal: (member) => member.reconnect(),
  });

/** A graceful restart: a leader hands over before it ends. */
const reboot = (who: string, choose: Choose) =>
  onContainer({
    ...{ name: `reboot-${who}`, choose, lasts: moment },
    hit: (member) => member.reboot(),
  });

export const containerFaults: readonly FaultKind<Contained>[] = [
  disconnect("leader", leader),
  disconnect("follower", follower),
  reboot("leader", leader),
  reboot("follower", follower),
];
