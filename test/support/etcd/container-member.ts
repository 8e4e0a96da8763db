// One member of a cluster in containers: on docker's bridge for its clients, on the cluster's own network for its peers.
import os from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { getContainerRuntimeClient } from "testcontainers";
import { EtcdContainer } from "./etcd-container.js";
import { askGateway, statusBy } from "../clients/etcd-http.js";

/** Identifies the process that the container belongs to. */
const LABEL = "leasehold.process";
const OWN = `${os.hostname()}:${process.pid}`;
const OURS = { [LABEL]: OWN };

type Client = Awaited<ReturnType<typeof getContainerRuntimeClient>>;
type Container = ReturnType<Client["container"]["getById"]>;
type Network = ReturnType<Client["network"]["getById"]>;

const READY_MS = 30_000;
const PEER_PORT = 2380;

export interface ContainerPlan {
  readonly name: string;
  /** For its clients, on 127.0.0.1. */
  readonly port: number;
  readonly network: Network;
  /** Its address on that network. */
  readonly address: string;
  /** The addresses of all members, by name. */
  readonly addresses: Readonly<Record<string, string>>;
}

/** On two networks from the start, because etcd is not ready before its peers are reachable. */
class OnTwoNetworks extends EtcdContainer {
  readonly #plan: ContainerPlan;
  id = "";

  constructor(plan: ContainerPlan) {
    const { name, address, addresses } = plan;
    const peers = Object.entries(addresses).map(([peer, at]) => `${peer}=http://${at}:${PEER_PORT}`);
    super(plan.port, [
      `--name=${name}`,
      `--listen-peer-urls=http://0.0.0.0:${PEER_PORT}`,
      `--initial-advertise-peer-urls=http://${address}:${PEER_PORT}`,
      `--initial-cluster=${peers.join(",")}`,
    ]);
    this.#plan = plan;
    this.withLabels(OURS);
  }

  protected override async containerCreated(id: string): Promise<void> {
    this.id = id;
    await connect(this.#plan, id);
  }
}

const connect = ({ network, address }: ContainerPlan, id: string) =>
  network.connect({ Container: id, EndpointConfig: { IPAMConfig: { IPv4Address: address } } });

export class ContainerMember {
  readonly name: string;
  readonly endpoint: string;
  readonly #plan: ContainerPlan;
  readonly #container: Container;
  #running = true;

  /** Resolves when it is ready, which requires a majority of its peers: start all members at once. */
  static async start(plan: ContainerPlan): Promise<ContainerMember> {
    const definition = new OnTwoNetworks(plan);
    await definition.start();
    const { container } = await getContainerRuntimeClient();
    return new ContainerMember(plan, container.getById(definition.id));
  }

  private constructor(plan: ContainerPlan, container: Container) {
    this.name = plan.name;
    this.endpoint = `http://127.0.0.1:${plan.port}`;
    this.#plan = plan;
    this.#container = container;
  }

  get running(): boolean {
    return this.#running;
  }

  status(options?: { timeoutMs?: number }) {
    return statusBy((path, body) => this.gateway(path, body, options));
  }

  /** Like `EtcdMember.gateway`. */
  gateway(path: string, body: unknown, options?: { timeoutMs?: number }): ReturnType<typeof askGateway> {
    return askGateway(this, path, body, options);
  }

  async pause(): Promise<void> {
    await this.#container.pause();
  }

  async resume(): Promise<void> {
    await this.#container.unpause();
  }

  async kill(): Promise<void> {
    if (!this.#running) return;
    this.#running = false;
    await this.#container.kill();
  }

  /** Call after `kill()`. */
  async restart(): Promise<void> {
    await this.#container.start();
    await this.#answers();
    this.#running = true;
  }

  /** Sends SIGTERM, on which it hands over its leadership, then starts it again. */
  async reboot(): Promise<void> {
    await this.#container.restart({ t: 10 });
    await this.#answers();
  }

  /** Disconnects it from its peers: clients still reach it. */
  async disconnect(): Promise<void> {
    await this.#plan.network.disconnect({ Container: this.#container.id, Force: true });
  }

  async reconnect(): Promise<void> {
    await connect(this.#plan, this.#container.id);
  }

  async #answers(): Promise<void> {
    const read = { key: "AA==" };
    for (const until = performance.now() + READY_MS; ; await delay(20)) {
      const failure = await this.gateway("/v3/kv/range", read).then(() => undefined, String);
      if (failure === undefined) return;
      if (performance.now() > until) throw new Error(`no quorum read within ${READY_MS} ms (${failure})`);
    }
  }
}

/** A network for peers only, without access to the outside. */
export async function createNetwork(): Promise<{ network: Network; addressOf: (index: number) => string }> {
  const { network } = await getContainerRuntimeClient();
  for (let attempt = 0; ; attempt++) {
    const range = `10.78.${(process.pid + attempt) % 256}`;
    const IPAM = { Driver: "default", Config: [{ Subnet: `${range}.0/24` }] };
    try {
      const made = await network.create({ Name: `leasehold-${range}`, Internal: true, IPAM, Labels: OURS });
      return { network: made, addressOf: (index) => `${range}.${index + 11}` };
    } catch (error) {
      // another network has these addresses
      if (attempt === 5) throw error;
    }
  }
}

/** Removes the containers and networks of this process, and those of processes on this machine that have ended. */
export async function removeContainers(): Promise<void> {
  const { dockerode } = (await getContainerRuntimeClient()).container;
  const filters = { label: [LABEL] };
  const containers = await dockerode.listContainers({ all: true, filters });
  const mine = containers.filter(({ Labels }) => isOver(Labels[LABEL]));
  await Promise.all(mine.map(({ Id }) => dockerode.getContainer(Id).remove({ force: true, v: true })));
  const networks = await dockerode.listNetworks({ filters });
  const empty = networks.filter(({ Labels }) => isOver(Labels?.[LABEL]));
  await Promise.all(empty.map(({ Id }) => dockerode.getNetwork(Id).remove()));
}

function isOver(label = ""): boolean {
  if (label === OWN) return true;
  const [, host, pid] = /^(.*):(\d+)$/.exec(label) ?? [];
  if (host !== os.hostname()) return false;
  try {
    process.kill(Number(pid), 0);
    return false;
  } catch {
    return true;
  }
}
