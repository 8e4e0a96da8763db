import { follower, leader, type Choose } from "./choose.js";
import type { FaultKind } from "../runner/ground.js";

/**
 * Without one follower, the other members serve: with a TTL of this length, a client has the whole TTL to find one of
 * them.
 */
const LONG_TTL_MS = 6000;
const spared = (who: string) => (ttlMs: number) => who === "follower" && ttlMs >= LONG_TTL_MS;

const pause = (who: string, choose: Choose): FaultKind => ({
  name: `pause-${who}`,
  effect: "hinders",
  sparesLeases: spared(who),
  async inflict(field) {
    const member = await choose(field);
    await member.pause();
    return { target: member.name, heal: () => member.resume() };
  },
});

const kill = (who: string, choose: Choose): FaultKind => ({
  name: `kill-${who}`,
  effect: "hinders",
  sparesLeases: spared(who),
  async inflict(field) {
    const member = await choose(field);
    await member.kill();
    return { target: member.name, heal: () => member.restart() };
  },
});

/** All members at once, as when a rack loses its power. */
export const restartEtcd: FaultKind = {
  name: "restart-etcd",
  effect: "hinders",
  async inflict({ ground: { members } }) {
    await Promise.all(members.map((member) => member.kill()));
    const heal = async () => void (await Promise.all(members.map((member) => member.restart())));
    return { target: "all", heal };
  },
};

/** For a ground with one member. */
export const pauseEtcd = pause("etcd", leader);

export const memberFaults: readonly FaultKind[] = [
  pause("leader", leader),
  pause("follower", follower),
  kill("leader", leader),
  kill("follower", follower),
];
