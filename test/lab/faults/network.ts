import type { Rule } from "../../support/servers/nft.js";
import type { Hosts } from "../../support/servers/netns.js";
import type { FaultKind, Field, Ground, Member } from "../runner/ground.js";
import { pastElections } from "../runner/schedule.js";
import { either, follower, leader, placeOf, type Choose } from "./choose.js";

/** A ground whose members are separate hosts. */
export interface Networked extends Ground {
  readonly hostsOfMembers: Hosts;
  /** The port at which workers reach a member; nemesis and observer use another one. */
  readonly workersPort: number;
}

interface Filter {
  readonly name: string;
  readonly choose: Choose;
  readonly rules: (field: Field<Networked>, member: Member) => Rule[];
  readonly lasts?: FaultKind["lasts"];
}

/** Filters the packets of one member. */
const filter = ({ name, choose, rules, lasts }: Filter): FaultKind<Networked> => ({
  ...{ name, effect: "hinders" as const, ...(lasts && { lasts }) },
  async inflict(field) {
    const { ground } = field;
    const member = await choose(field);
    await ground.hostsOfMembers.filter(placeOf(ground, member), rules(field, member));
    return { target: member.name, heal: () => ground.hostsOfMembers.heal() };
  },
});

type Ways = readonly Rule["way"][];
const BOTH: Ways = ["in", "out"];

const peersOf = ({ members, hostsOfMembers }: Networked, member: Member) =>
  hostsOfMembers.addresses.filter((_, index) => members[index] !== member);

const fromPeers = (name: string, choose: Choose, ways: Ways) =>
  filter({
    ...{ name, choose, lasts: pastElections },
    rules: ({ ground }, member) =>
      peersOf(ground, member).flatMap((other) => ways.map((way) => ({ way, other, fate: "drop" as const }))),
  });

const fromWorkers = (name: string, ways: Ways, fate: "drop" | "reset" = "drop") =>
  filter({
    ...{ name, choose: either },
    rules: ({ ground: { workersPort: port } }) => ways.map((way) => ({ way, port, fate })),
  });

/** Each member still reaches another one, but each a different one: two majorities with one member in common. */
const ring: FaultKind<Networked> = {
  name: "majority-ring",
  effect: "hinders",
  lasts: pastElections,
  async inflict({ ground, random }) {
    const { members, hostsOfMembers } = ground;
    const middle = random.pick(members);
    const [one, other] = members.filter((member) => member !== middle) as [Member, Member];
    const address = hostsOfMembers.addresses[placeOf(ground, other)] as string;
    const rules = BOTH.map((way) => ({ way, other: address, fate: "drop" as const }));
    await hostsOfMembers.filter(placeOf(ground, one), rules);
    return { target: `${one.name}-${other.name}`, heal: () => hostsOfMembers.heal() };
  },
};

/** No member is in a majority. */
const shatter: FaultKind<Networked> = {
  name: "shatter",
  effect: "hinders",
  lasts: pastElections,
  async inflict({ ground }) {
    const { members, hostsOfMembers } = ground;
    const alone = (member: Member) =>
      peersOf(ground, member).map((other) => ({ way: "in", other, fate: "drop" }) as const);
    await Promise.all(members.map((member, index) => hostsOfMembers.filter(index, alone(member))));
    return { target: "all", heal: () => hostsOfMembers.heal() };
  },
};

const unplug: FaultKind<Networked> = {
  name: "unplug",
  effect: "hinders",
  async inflict(field) {
    const { hostsOfMembers } = field.ground;
    const member = await either(field);
    await hostsOfMembers.unplug(placeOf(field.ground, member));
    return { target: member.name, heal: () => hostsOfMembers.heal() };
  },
};

export const networkFaults: readonly FaultKind<Networked>[] = [
  fromPeers("isolate-leader", leader, BOTH),
  fromPeers("isolate-follower", follower, BOTH),
  fromPeers("deaf-leader", leader, ["in"]),
  fromPeers("deaf-follower", follower, ["in"]),
  fromPeers("mute-leader", leader, ["out"]),
  fromPeers("mute-follower", follower, ["out"]),
  filter({
    ...{ name: "cut-off", choose: either, lasts: pastElections },
    rules: () => BOTH.map((way) => ({ way, fate: "drop" })),
  }),
  ring,
  shatter,
  filter({
    ...{ name: "lose-packets", choose: either, lasts: pastElections },
    rules: ({ random }) => {
      const lose = random.between(20, 40);
      return BOTH.map((way) => ({ way, fate: { lose } }));
    },
  }),
  unplug,
  fromWorkers("link-blackhole", BOTH),
  fromWorkers("drop-requests", ["in"]),
  fromWorkers("drop-answers", ["out"]),
  fromWorkers("link-reject", ["in"], "reset"),
];
