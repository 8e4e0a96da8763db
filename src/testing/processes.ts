import { etcdEnv, type Programs, searchEtcd, STEPS, versionOf } from "./find.js";
import type { Address } from "./link.js";
import type { CheckedStart } from "./options.js";
import { type ServerMember, wrongWith } from "./admin.js";
import type { Fleet, StartLimits } from "./running-etcd.js";
import {
  freePorts,
  type Guardian,
  guardedFolder,
  memberArgs,
  type MemberRow,
  READY,
  ServerProcess,
  startAll,
  withFreshPorts,
} from "./servers.js";

const HOST = "127.0.0.1";

/** Starts the members as processes of this machine, on free ports of 127.0.0.1. */
export async function startProcesses(options: CheckedStart): Promise<Fleet<ServerMember>> {
  const programs = await programsOf(options);
  return withFreshPorts(() => startOnce(programs, options));
}

async function programsOf({ binary, version }: CheckedStart): Promise<Omit<Programs, "etcdctl">> {
  const wanted = version ?? (process.env["LEASEHOLD_ETCD_VERSION"] || undefined);
  if (binary === undefined)
    return searchEtcd(STEPS, { env: process.env, version: wanted, withClient: false });
  const actual = await versionOf(binary);
  if (actual === undefined) throw new Error(`${binary} --version does not print a version of etcd`);
  if (version === undefined || `${actual}.`.startsWith(`${version}.`))
    return { etcd: binary, version: actual };
  throw new Error(`${binary} is etcd ${actual}, and version asks for ${version}`);
}

async function startOnce(
  programs: Omit<Programs, "etcdctl">,
  options: CheckedStart,
): Promise<Fleet<ServerMember>> {
  const { folder, guardian } = await guardedFolder();
  const rows = await rowsOf(options.members, guardian);
  const extra = hasUnsafeNoFsync(programs.version) ? ["--unsafe-no-fsync"] : [];
  const members = rows.map((row) => {
    const args = [...memberArgs(row, folder, rows), ...extra];
    return new ProcessMember(row, [programs.etcd, ...args], (line) => guardian.tell(line));
  });
  const remove = async (): Promise<void> => {
    await Promise.all(members.map((member) => member.kill()));
    await guardian.dismiss();
  };
  try {
    await startAll(members.map((member) => member.start(options)));
    return { members, version: programs.version, remove };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function rowsOf(count: number, guardian: Guardian): Promise<MemberRow[]> {
  const ports = await freePorts(2 * count, guardian);
  return Array.from({ length: count }, (_, index) => {
    const [clientPort = 0, peerPort = 0] = ports.slice(2 * index);
    const peer = `http://${HOST}:${peerPort}`;
    return { name: `m${index}`, host: HOST, clientPort, peerPort, peer };
  });
}

/** etcd 3.4 does not know the flag, and would not start. */
function hasUnsafeNoFsync(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > 3 || minor >= 5;
}

class ProcessMember implements ServerMember {
  readonly name: string;
  readonly address: Address;
  readonly #process: ServerProcess;

  constructor(row: MemberRow, command: readonly [string, ...string[]], tellGuardian: (line: string) => void) {
    this.name = row.name;
    this.address = { host: row.host, port: row.clientPort };
    this.#process = new ServerProcess({
      title: `etcd ${row.name}`,
      command,
      env: etcdEnv(),
      ready: READY,
      tellGuardian,
      answers: () => wrongWith(this.address),
    });
  }

  get running(): boolean {
    return this.#process.running;
  }

  start(limits: StartLimits): Promise<void> {
    return this.#process.start(limits);
  }

  kill(): Promise<void> {
    return this.#process.kill();
  }

  pause(): Promise<void> {
    this.#process.pause();
    return Promise.resolve();
  }

  resume(): Promise<void> {
    this.#process.resume();
    return Promise.resolve();
  }
}
