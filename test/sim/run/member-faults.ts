import { moment, pastElections } from "../../lab/runner/schedule.js";
import type { SimFault, SimField } from "./faults.js";

/** The place of the member that a fault hits; undefined: there is currently none. */
type Choose = (field: SimField) => number | undefined;

const leader: Choose = ({ crew }) => crew.members.leader;

const follower: Choose = ({ crew: { members }, random }) => {
  const led = members.leader;
  return led === undefined ? undefined : random.pick(members.places.filter((place) => place !== led));
};

/** The leader in half of the cases. */
const either: Choose = (field) => (field.random.chance(0.5) ? leader(field) : follower(field));

interface Hit {
  readonly name: string;
  readonly choose: Choose;
  readonly hit: (field: SimField, place: number) => void;
  readonly heal?: (field: SimField, place: number) => void;
  readonly more?: Pick<SimFault, "lasts" | "sparesLeases" | "endsStreams">;
}

const onMember = ({ name, choose, hit, heal, more }: Hit): SimFault => ({
  ...{ name, effect: "hinders", ...more },
  hit(field) {
    if (!field.crew.members.several) return undefined;
    const place = choose(field);
    if (place === undefined) return undefined;
    hit(field, place);
    return { target: `m${place + 1}`, heal: () => heal?.(field, place) };
  },
});

/** As in the lab: with a TTL of this length, a client has the whole TTL to find another member than the follower. */
const LONG_TTL_MS = 6000;
const sparing = { sparesLeases: (ttlMs: number): boolean => ttlMs >= LONG_TTL_MS };

const pause = (who: string, choose: Choose): SimFault =>
  onMember({
    ...{ name: `pause-${who}`, choose, ...(who === "follower" && { more: sparing }) },
    hit: ({ crew }, place) => crew.members.pause(place),
    heal: ({ crew }, place) => crew.members.resume(place),
  });

const kill = (who: string, choose: Choose): SimFault =>
  onMember({
    ...{ name: `kill-${who}`, choose, ...(who === "follower" && { more: sparing }) },
    hit: ({ crew }, place) => crew.members.kill(place),
    heal: ({ crew }, place) => crew.members.restart(place),
  });

const restartEtcd: SimFault = onMember({
  ...{ name: "restart-etcd", choose: () => 0 },
  hit({ crew: { members } }) {
    for (const place of members.places) members.kill(place);
  },
  heal({ crew: { members } }) {
    for (const place of members.places) members.restart(place);
  },
});

/** From its peers, in both directions. */
const isolate = (who: string, choose: Choose): SimFault =>
  onMember({
    ...{ name: `isolate-${who}`, choose, more: { endsStreams: true, lasts: pastElections } },
    hit: ({ crew }, place) => crew.members.isolate(place),
    heal: ({ crew }) => crew.members.heal(),
  });

const cutOff: SimFault = onMember({
  ...{ name: "cut-off", choose: either, more: { lasts: pastElections } },
  hit: ({ crew }, place) => crew.members.cutOff(place),
  heal: ({ crew }, place) => crew.members.heal(place),
});

/** Each member still reaches another one, but each a different one. */
const ring: SimFault = onMember({
  ...{ name: "majority-ring", choose: either, more: { lasts: pastElections } },
  hit({ crew: { members }, random }, middle) {
    const others = members.places.filter((place) => place !== middle);
    const one = random.pick(others);
    members.cut(one, random.pick(others.filter((place) => place !== one)));
  },
  heal: ({ crew }) => crew.members.heal(),
});

/** No member is in a majority. */
const shatter: SimFault = onMember({
  ...{ name: "shatter", choose: () => 0, more: { lasts: pastElections } },
  hit({ crew: { members } }) {
    for (const place of members.places) members.isolate(place);
  },
  heal: ({ crew }) => crew.members.heal(),
});

const slowDisk = (who: string, choose: Choose): SimFault =>
  onMember({
    ...{ name: `slow-disk-${who}`, choose },
    more: { lasts: (random, ttlMs) => random.between(ttlMs, 3 * ttlMs) },
    hit: ({ crew }, place) => crew.members.block(place, true),
    heal: ({ crew }, place) => crew.members.block(place, false),
  });

/** Its applied index is behind: half of the time for less than an attempt, else for up to three seconds. */
const lag: SimFault = onMember({
  ...{ name: "lag-member", choose: either },
  hit: ({ crew, random }, place) =>
    crew.members.lag(place, random.chance(0.5) ? random.between(5, 300) : random.between(300, 3000)),
  heal: ({ crew }, place) => crew.members.lag(place, 0),
});

const moveLeader: SimFault = {
  name: "move-leader",
  effect: "hinders",
  lasts: moment,
  hit(field) {
    if (!field.crew.members.several) return undefined;
    const [from, to] = [leader(field), follower(field)];
    if (from === undefined || to === undefined || !field.crew.members.moveLeader(to)) return undefined;
    return { target: `m${from + 1}` };
  },
};

/** Of an etcd of several members, named and described as in the lab. */
export const MEMBER_FAULTS: readonly SimFault[] = [
  pause("leader", leader),
  pause("follower", follower),
  kill("leader", leader),
  kill("follower", follower),
  restartEtcd,
  isolate("leader", leader),
  isolate("follower", follower),
  cutOff,
  ring,
  shatter,
  slowDisk("leader", leader),
  slowDisk("follower", follower),
  lag,
  moveLeader,
];
