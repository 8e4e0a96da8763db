import { setTimeout as delay } from "node:timers/promises";
import type { StartedNetwork, StartedTestContainer } from "testcontainers";
import type { Address } from "./link.js";
import type { CheckedStart } from "./options.js";
import { type ServerMember, wrongWith } from "./admin.js";
import type { Fleet, StartLimits } from "./running-etcd.js";
import { READY } from "./servers.js";

type Testcontainers = typeof import("testcontainers");
type Runtime = Awaited<ReturnType<Testcontainers["getContainerRuntimeClient"]>>;

const CLIENTS = 2379;
const PEERS = 2380;
const POLL_MS = 20;
const KEPT_LINES = 8;

/** Starts the members as containers; three of them find each other by name on a network of their own. */
export async function startContainers(image: string, options: CheckedStart): Promise<Fleet<ServerMember>> {
  const library = await load();
  const network = options.members === 1 ? undefined : await new library.Network().start();
  const names = Array.from({ length: options.members }, (_, index) => `m${index}`);
  const starts = names.map((name) => startOne({ library, image, name, names, network }, options));
  const started = await Promise.allSettled(starts);
  const members = started.flatMap((result) => (result.status === "fulfilled" ? [result.value] : []));
  const remove = async (): Promise<void> => {
    await Promise.all(members.map((member) => member.remove()));
    await network?.stop();
  };
  try {
    options.signal?.throwIfAborted();
    for (const result of started) if (result.status === "rejected") throw result.reason;
    await Promise.all(members.map((member) => member.answers(options)));
    return { members, version: undefined, remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function load(): Promise<Testcontainers> {
  try {
    return await import("testcontainers");
  } catch (error) {
    const hint =
      "startEtcd({ image }) needs the package testcontainers: npm install --save-dev testcontainers";
    throw new Error(hint, { cause: error });
  }
}

interface Plan {
  readonly library: Testcontainers;
  readonly image: string;
  readonly name: string;
  readonly names: readonly string[];
  readonly network: StartedNetwork | undefined;
}

async function startOne(plan: Plan, { timeoutMs }: CheckedStart): Promise<ContainerMember> {
  const { library, image, name, network } = plan;
  const lines: string[] = [];
  const container = new library.GenericContainer(image)
    .withEnvironment(environmentOf(plan))
    .withExposedPorts(CLIENTS)
    .withStartupTimeout(timeoutMs)
    .withWaitStrategy(library.Wait.forLogMessage(READY))
    .withLogConsumer((stream) =>
      stream.on("data", (line: string | Buffer) => {
        if (lines.push(String(line).trimEnd()) > KEPT_LINES) lines.shift();
      }),
    );
  if (network !== undefined) container.withNetwork(network).withNetworkAliases(name);
  const started = await container.start().catch((error: Error) => {
    const words = lines.length === 0 ? "" : `. Its last words:\n${lines.join("\n")}`;
    throw new Error(`etcd ${name} of image ${image} does not start: ${error.message}${words}`, {
      cause: error,
    });
  });
  return new ContainerMember(name, started, await library.getContainerRuntimeClient());
}

/** etcd's settings. They are no flags because some images have etcd as their entry point and others as their command. */
function environmentOf({ name, names, network }: Plan): Record<string, string> {
  const host = (peer: string) => `http://${network === undefined ? "127.0.0.1" : peer}:${PEERS}`;
  return {
    ETCD_NAME: name,
    ETCD_DATA_DIR: "/tmp/etcd",
    ETCD_LISTEN_CLIENT_URLS: `http://0.0.0.0:${CLIENTS}`,
    ETCD_ADVERTISE_CLIENT_URLS: `http://${network === undefined ? "127.0.0.1" : name}:${CLIENTS}`,
    ETCD_LISTEN_PEER_URLS: `http://0.0.0.0:${PEERS}`,
    ETCD_INITIAL_ADVERTISE_PEER_URLS: host(name),
    ETCD_INITIAL_CLUSTER: names.map((peer) => `${peer}=${host(peer)}`).join(","),
    ETCD_LOGGER: "zap",
    ETCD_UNSAFE_NO_FSYNC: "true",
    // Some images allow only clients with a password otherwise.
    ALLOW_NONE_AUTHENTICATION: "yes",
  };
}

class ContainerMember implements ServerMember {
  running = true;
  address: Address;
  #paused = false;
  readonly #started: StartedTestContainer;
  readonly #runtime: Runtime["container"];

  constructor(
    readonly name: string,
    started: StartedTestContainer,
    runtime: Runtime,
  ) {
    this.#started = started;
    this.#runtime = runtime.container;
    this.address = { host: started.getHost(), port: started.getMappedPort(CLIENTS) };
  }

  get #container() {
    return this.#runtime.getById(this.#started.getId());
  }

  async start(limits: StartLimits): Promise<void> {
    await this.#container.start();
    this.running = true;
    const { NetworkSettings } = await this.#runtime.inspect(this.#container);
    // The engine may give it another port.
    const port = Number(NetworkSettings.Ports[`${CLIENTS}/tcp`]?.[0]?.HostPort ?? this.address.port);
    this.address = { ...this.address, port };
    await this.answers(limits);
  }

  /** Resolves when it has confirmed a read with a majority. */
  async answers({ signal, timeoutMs }: StartLimits): Promise<void> {
    for (const until = performance.now() + timeoutMs; ; await delay(POLL_MS)) {
      signal?.throwIfAborted();
      const wrong = await wrongWith(this.address);
      if (wrong === "") return;
      if (performance.now() > until)
        throw new Error(`etcd ${this.name} does not answer within ${timeoutMs} ms: ${wrong}`);
    }
  }

  async kill(): Promise<void> {
    if (!this.running) return;
    // The engine kills no paused container.
    await this.resume();
    await this.#container.kill();
    this.running = false;
  }

  async pause(): Promise<void> {
    if (!this.running || this.#paused) return;
    await this.#container.pause();
    this.#paused = true;
  }

  async resume(): Promise<void> {
    if (!this.#paused) return;
    await this.#container.unpause();
    this.#paused = false;
  }

  async remove(): Promise<void> {
    await this.resume();
    await this.#started.stop({ timeout: 0, remove: true, removeVolumes: true });
  }
}
