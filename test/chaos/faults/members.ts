import type { EtcdMember } from "../../support/etcd.js";
import type { FaultKind, Field } from "../lab/ground.js";

type Choose = (field: Field) => Promise<EtcdMember>;

const leader: Choose = ({ ground }) => ground.leader();
const follower: Choose = async ({ ground, random }) => {
  const led = await ground.leader();
  return random.pick(ground.members.filter((member) => member !== led));
};

const pause = (who: string, choose: Choose): FaultKind => ({
  name: `pause-${who}`,
  effect: "hinders",
  async inflict(field) {
    const member = await choose(field);
    member.pause();
    return { target: member.name, heal: () => member.resume() };
  },
});

const kill = (who: string, choose: Choose): FaultKind => ({
  name: `kill-${who}`,
  effect: "hinders",
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

/** Of a ground with one member. */
export const pauseEtcd = pause("etcd", leader);

export const memberFaults: readonly FaultKind[] = [
  pause("leader", leader),
  pause("follower", follower),
  kill("leader", leader),
  kill("follower", follower),
];
