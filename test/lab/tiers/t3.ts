import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { aptInstall } from "../../support/servers/apt-install.js";
import { findEtcd, startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { Hosts } from "../../support/servers/netns.js";
import { slowSyncs } from "../../support/servers/strace.js";
import { diskFaults, type OnDisk } from "../faults/disk.js";
import { memberFaults, restartEtcd } from "../faults/members.js";
import { networkFaults, type Networked } from "../faults/network.js";
import { moveLeader, storeFaults } from "../faults/store.js";
import { userFaults, type Peopled } from "../faults/users.js";
import { workerFaults } from "../faults/workers.js";
import { NotRunError, type GroundOptions, type Surroundings, type Tier } from "../runner/ground.js";
import { isInside, withoutProxies } from "../runner/surroundings.js";
import { EtcdGround, etcdOptions } from "./etcd-ground.js";

const run = promisify(execFile);
const MEMBERS = 3;
/** For the workers; nemesis and observer use a separate port, which no fault of this one closes. */
const PORT = 2379;

/** Three members on separate hosts; workers, nemesis and observer share a fourth one. */
class ThreeHosts extends EtcdGround implements Networked, OnDisk, Peopled {
  readonly hostsOfMembers: Hosts;
  readonly workersPort = PORT;

  constructor(etcd: EtcdCluster, hosts: Hosts) {
    super(etcd);
    this.hostsOfMembers = hosts;
  }

  get hosts() {
    return this.hostsOfMembers.addresses.map((address) => `http://${address}:${this.workersPort}`);
  }

  override async stop() {
    await super.stop();
    await this.hostsOfMembers.stop();
  }
}

async function surround({ etcdVersion }: GroundOptions): Promise<Surroundings> {
  if (process.platform !== "linux") throw new NotRunError("network namespaces need Linux");
  if (process.getuid?.() !== 0) throw new NotRunError("only root may make network namespaces");
  await provideTools();
  await run("unshare", ["--net", "true"]).catch(refusal("no network namespace can be made"));
  // Inside, there is no network access to download it.
  await findEtcd({ version: etcdVersion });
  return { within: ["unshare", "--net"], env: withoutProxies(), end: () => Promise.resolve() };
}

const TOOLS = {
  ip: "iproute2",
  nft: "nftables",
  strace: "strace",
  unshare: "util-linux",
  nsenter: "util-linux",
};

async function provideTools(): Promise<void> {
  const missing = new Set<string>();
  for (const [program, origin] of Object.entries(TOOLS)) {
    await run(program, ["--version"]).catch(
      ({ code }: { code?: unknown }) => code === "ENOENT" && missing.add(origin),
    );
  }
  if (missing.size > 0)
    await aptInstall([...missing]).catch(refusal(`${[...missing].join(", ")} is missing`));
}

const refusal = (what: string) => (error: unknown) => {
  const { stderr, message } = error as Error & { stderr?: string };
  throw new NotRunError(`${what} (${(stderr || message).trim()})`, { cause: error });
};

async function start(options: GroundOptions): Promise<ThreeHosts> {
  if (!isInside(t3)) throw new Error("Expected a network namespace of the run's own: see surround()");
  const hosts = await Hosts.start(MEMBERS).catch(refusal("no bridge between namespaces can be made"));
  try {
    await tryOut(hosts);
    const etcd = await startEtcd({
      members: MEMBERS,
      ...etcdOptions(options),
      place: (n) => ({ host: hosts.addresses[n] as string, within: hosts.within(n), doors: [PORT] }),
    });
    return await new ThreeHosts(etcd, hosts).addUsers(options);
  } catch (error) {
    await hosts.stop();
    throw error;
  }
}

/** Whether this kernel supports what the faults need. */
async function tryOut(hosts: Hosts): Promise<void> {
  const rules = [
    { way: "in", port: PORT, fate: "reset" },
    { way: "out", other: hosts.addresses[1] as string, fate: { lose: 1 } },
  ] as const;
  await hosts.filter(0, rules).catch(refusal("nft's rules are refused"));
  await hosts.heal();
  await run("strace", [...slowSyncs(1), "true"]).catch(refusal("strace is refused"));
}

export const t3: Tier<ThreeHosts> = {
  name: "t3",
  title: "three members in network namespaces",
  faults: [
    ...workerFaults,
    ...memberFaults,
    restartEtcd,
    ...networkFaults,
    ...diskFaults,
    ...storeFaults,
    ...userFaults,
    moveLeader,
  ],
  has: ["auth"],
  surround,
  start,
};
