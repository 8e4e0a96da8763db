import {
  ContainerMember,
  createNetwork,
  removeContainers,
  type ContainerPlan,
} from "../../support/etcd/container-member.js";
import { dockerEngine } from "../../support/servers/docker-engine.js";
import { containersOf, provideImage } from "../../support/servers/docker-image.js";
import { request } from "../../support/clients/etcd-http.js";
import { leaderAmong } from "../../support/etcd/etcd-leader.js";
import { freePorts } from "../../support/servers/ports.js";
import { containerFaults, type Contained } from "../faults/containers.js";
import { memberFaults, restartEtcd } from "../faults/members.js";
import { moveLeader, storeFaults } from "../faults/store.js";
import { workerFaults } from "../faults/workers.js";
import { NotRunError, type GroundOptions, type Surroundings, type Tier } from "../runner/ground.js";
import { isInside, withoutProxies } from "../runner/surroundings.js";

const NAMES = ["m1", "m2", "m3"];

/** Three members in containers; workers reach each at a separate port of 127.0.0.1. */
class ThreeContainers implements Contained {
  readonly members: readonly ContainerMember[];
  readonly version: string;
  readonly access = {};

  constructor(members: readonly ContainerMember[], version: string) {
    this.members = members;
    this.version = version;
  }

  get hosts() {
    return this.members.map(({ endpoint }) => endpoint);
  }

  leader() {
    const [first] = this.members as [ContainerMember];
    return leaderAmong(this.members, { timeoutMs: 3000 }).catch(() => first);
  }

  async stop() {
    await removeContainers();
  }
}

async function surround({ etcdVersion }: GroundOptions): Promise<Surroundings> {
  const engine = await dockerEngine().catch(({ message }: Error) => {
    throw new NotRunError(message);
  });
  const env = { ...process.env, ...engine.env };
  const { image } = await provideImage(env, etcdVersion).catch(async (error: Error) => {
    await engine.stop();
    throw new NotRunError(`no image of etcd can be made: ${error.message}`, { cause: error });
  });
  const settings = { ...engine.env, ...containersOf(image) };
  return { within: engine.within, env: { ...withoutProxies(), ...settings }, end: () => engine.stop() };
}

async function start(): Promise<ThreeContainers> {
  if (!isInside(t4)) throw new Error("Expected the environment of a docker engine: see surround()");
  // Containers of an earlier run that was killed, if the container engine outlives a run.
  await removeContainers();
  try {
    const plans = await plan();
    const members = await Promise.all(plans.map((each) => ContainerMember.start(each)));
    return new ThreeContainers(members, await versionOf(members[0] as ContainerMember));
  } catch (error) {
    await removeContainers();
    throw error;
  }
}

async function plan(): Promise<ContainerPlan[]> {
  const ports = await freePorts(NAMES.length);
  const { network, addressOf } = await createNetwork();
  const addresses = Object.fromEntries(NAMES.map((name, index) => [name, addressOf(index)]));
  return NAMES.map((name, index) => ({
    ...{ name, port: ports[index] as number, network, address: addressOf(index), addresses },
  }));
}

async function versionOf({ endpoint }: ContainerMember): Promise<string> {
  const { text } = await request(`${endpoint}/version`);
  return (JSON.parse(text) as { etcdserver: string }).etcdserver;
}

export const t4: Tier<ThreeContainers> = {
  name: "t4",
  title: "three members in containers",
  faults: [...workerFaults, ...memberFaults, restartEtcd, ...containerFaults, ...storeFaults, moveLeader],
  surround,
  start,
};
