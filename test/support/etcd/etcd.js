// Local etcd clusters for tests, demo and playground: started here and stopped here, even if the starter dies.
import { execFile } from "node:child_process";
import {
  guardedFolder,
  memberArgs as plainArgs,
  startAll,
  withFreshPorts,
} from "../../../dist/testing/servers.js";
import { etcdEnv, findEtcd } from "./etcd-find.js";
import { shownTo } from "../clients/etcd-http.js";
import { leaderAmong } from "./etcd-leader.js";
import { EtcdMember } from "./etcd-member.js";
import { freePorts } from "../servers/ports.js";

export { EtcdMissingError, exitWhenMissing, findEtcd } from "./etcd-find.js";
export { EtcdMember, PortTakenError } from "./etcd-member.js";

/** @typedef {import("../clients/etcd-http.js").ClientTls} ClientTls */

/**
 * @typedef {object} StartOptions
 * @property {1 | 2 | 3 | 5} [members] default 1
 * @property {readonly string[]} [args] more flags for every member, such as "--quota-backend-bytes=2000000"
 * @property {ClientTls} [clientTls]
 * @property {number} [snapshotCount] writes between two snapshots
 * @property {NodeJS.ProcessEnv} [env] more environment for every member
 * @property {(index: number, peerPort: number) => number | Promise<number>} [peerUrl] the port at which peers reach
 *   member `index`, such as that of a proxy in front of `peerPort`; default `peerPort` itself
 * @property {string} [version] such as "3.5"; default: LEASEHOLD_ETCD_VERSION, else the first etcd found
 * @property {readonly (readonly [client: number, peer: number])[]} [ports] of each member; default: free ones
 * @property {(index: number) => Place} [place] default: this process's own loopback
 */

/**
 * Where a member runs.
 * @typedef {object} Place
 * @property {string} host address that it listens on
 * @property {readonly string[]} within the command that starts etcd, such as nsenter; it must exec etcd
 * @property {readonly number[]} doors more ports for clients
 */

/** @type {Place} */
const HERE = { host: "127.0.0.1", within: [], doors: [] };

/**
 * @param {StartOptions} [options]
 * @returns {Promise<EtcdCluster>} every member answers a quorum read
 */
export async function startEtcd(options = {}) {
  const programs = await findEtcd({ version: options.version });
  // Ports that the caller has chosen are not replaced by others.
  if (options.ports) return startOnce(programs, options);
  return withFreshPorts(() => startOnce(programs, options));
}

/** @param {import("./etcd-find.js").Etcd} programs @param {StartOptions} options */
async function startOnce(programs, options) {
  const { folder, guardian } = await guardedFolder();
  const members = await plan(programs.etcd, folder, options, guardian);
  const start = { options, folder };
  const cluster = new EtcdCluster(programs, members, guardian, start);
  try {
    await startAll(members.map((member) => member.start()));
    return cluster;
  } catch (error) {
    await cluster.stop();
    throw error;
  }
}

/**
 * @param {string} program @param {string} folder @param {StartOptions} options @param {import("../servers/guarded.js").Guardian} guardian
 * @returns {Promise<EtcdMember[]>}
 */
async function plan(program, folder, options, guardian) {
  const count = options.members ?? 1;
  const found = await freePorts(3 * count, guardian);
  const rows = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const [clientPort, peerPort, metricsPort] = /** @type {[number, number, number]} */ (
        [...(options.ports?.[index] ?? []), ...found.slice(3 * index)].slice(0, 3)
      );
      const advertised = (await options.peerUrl?.(index, peerPort)) ?? peerPort;
      const place = options.place?.(index) ?? HERE;
      return {
        ...place,
        name: `m${index + 1}`,
        clientPort,
        peerPort,
        metricsPort,
        peer: `http://${place.host}:${advertised}`,
      };
    }),
  );
  const env = { ...etcdEnv(), ...options.env };
  const tellGuardian = (/** @type {string} */ line) => guardian.tell(line);
  return rows.map((row) => {
    const args = memberArgs({ ...row, folder, rows }, options);
    return new EtcdMember({ ...row, program, args, env, tls: options.clientTls, tellGuardian });
  });
}

/** @typedef {import("../../../dist/testing/servers.js").MemberRow} MemberRow */

/**
 * @param {Place & MemberRow & { metricsPort: number, folder: string, rows: readonly MemberRow[] }} row
 * @param {StartOptions} options
 */
function memberArgs(row, { args = [], clientTls, snapshotCount }) {
  const scheme = clientTls ? "https" : "http";
  const [client, ...doors] = [row.clientPort, ...row.doors].map((port) => `${scheme}://${row.host}:${port}`);
  const tls = clientTls && [`--cert-file=${clientTls.cert}`, `--key-file=${clientTls.key}`];
  // naming a CA makes etcd demand client certificates from it, whatever --client-cert-auth says
  const clientCerts = clientTls?.clientCertAuth && [
    `--trusted-ca-file=${clientTls.ca}`,
    "--client-cert-auth",
  ];
  // etcd takes the last of several flags with one name
  return [
    ...plainArgs(row, row.folder, row.rows),
    `--listen-client-urls=${[client, ...doors].join(",")}`,
    `--advertise-client-urls=${client}`,
    `--listen-metrics-urls=http://${row.host}:${row.metricsPort}`,
    ...(snapshotCount === undefined ? [] : [`--snapshot-count=${snapshotCount}`]),
    ...(tls ?? []),
    ...(clientCerts || []),
    ...args,
  ];
}

/** A running cluster. Stop it, or use `await using`. */
export class EtcdCluster {
  #guardian;
  #programs;
  #start;
  #tls;
  /** Started later, each under a name of its own. @type {EtcdMember[]} */
  #added = [];
  #stopped = false;

  /**
   * @param {import("./etcd-find.js").Etcd} programs
   * @param {readonly EtcdMember[]} members
   * @param {import("../servers/guarded.js").Guardian} guardian
   * @param {{ options: StartOptions, folder: string }} start how the members were started
   */
  constructor(programs, members, guardian, start) {
    this.#programs = programs;
    this.#guardian = guardian;
    this.#start = start;
    this.#tls = start.options.clientTls;
    this.members = members;
    this.endpoints = members.map((member) => member.endpoint);
    this.version = programs.version;
    this.program = programs.etcd;
  }

  /** The first member: for single-member clusters. */
  get member() {
    return /** @type {EtcdMember} */ (this.members[0]);
  }

  /**
   * Waits until a running member reports that it leads in the highest known term.
   * @param {{ timeoutMs?: number }} [options]
   */
  leader(options) {
    return leaderAmong(
      [...this.members, ...this.#added].filter((each) => each.running),
      options,
    );
  }

  /** Adds a non-voting member: see `addMember`. */
  addLearner() {
    return this.addMember({ isLearner: true });
  }

  /**
   * Adds a member on this process's loopback. Resolves when it serves. etcd refuses this in the first five seconds after its
   * own start, except with `--strict-reconfig-check=false`.
   * @param {{ isLearner?: boolean }} [kind]
   */
  async addMember({ isLearner = false } = {}) {
    const { options, folder } = this.#start;
    const [clientPort, peerPort, metricsPort] = /** @type {[number, number, number]} */ (
      await freePorts(3, this.#guardian)
    );
    const peer = `http://127.0.0.1:${peerPort}`;
    const leader = await this.leader();
    const body = { peerURLs: [peer], isLearner };
    /** @type {{ members: { name?: string, peerURLs: string[] }[] }} */
    const { members } = await leader.gateway("/v3/cluster/member/add", body, { timeoutMs: 10_000 });
    const name = `added${this.#added.length + 1}`;
    const row = { ...HERE, name, clientPort, peerPort, metricsPort, peer };
    const initialCluster = members.map((it) => `${it.name || name}=${it.peerURLs[0]}`).join(",");
    const args = [
      ...memberArgs({ ...row, folder, rows: [row] }, options),
      `--initial-cluster=${initialCluster}`,
      "--initial-cluster-state=existing",
    ];
    const member = new EtcdMember({
      ...{ ...row, program: this.#programs.etcd, args, env: { ...etcdEnv(), ...options.env } },
      ...{ tls: this.#tls, tellGuardian: (line) => this.#guardian.tell(line) },
    });
    this.#added.push(member);
    await member.start();
    return member;
  }

  /** Removes a member from the cluster, and ends its process. @param {EtcdMember} member */
  async removeMember(member) {
    const leader = await this.leader();
    /** @type {{ members: { ID: string, name?: string }[] }} */
    const { members } = await leader.gateway("/v3/cluster/member/list", {});
    const { ID } = members.find(({ name }) => name === member.name) ?? {};
    await leader.gateway("/v3/cluster/member/remove", { ID }, { timeoutMs: 10_000 });
    await member.kill();
  }

  /**
   * @param {readonly string[]} args
   * @param {{ timeoutMs?: number, endpoints?: readonly string[], env?: NodeJS.ProcessEnv }} [options]
   * @returns {Promise<{ code: number, stdout: string, stderr: string }>} never rejects because of the exit code
   */
  etcdctl(args, { timeoutMs = 15_000, endpoints = this.endpoints, env = {} } = {}) {
    const command = this.etcdctlCommand(endpoints);
    const settings = { timeout: timeoutMs, env: { ...command.env, ...env }, maxBuffer: 64 << 20 };
    return new Promise((resolve, reject) => {
      execFile(command.program, [...command.args, ...args], settings, (error, stdout, stderr) => {
        if (!error) return resolve({ code: 0, stdout, stderr });
        if (typeof error.code === "number") return resolve({ code: error.code, stdout, stderr });
        reject(
          new Error(
            `etcdctl ${args.join(" ")}: ${error.killed ? `no end within ${timeoutMs} ms` : error.message}`,
          ),
        );
      });
    });
  }

  /**
   * For tests that keep an etcdctl running: program, first arguments and environment for `spawn`.
   * @param {readonly string[]} [endpoints]
   */
  etcdctlCommand(endpoints = this.endpoints) {
    const shown = this.#tls && shownTo(this.#tls);
    const tls = [
      ...(this.#tls ? [`--cacert=${this.#tls.ca}`] : []),
      ...(shown ? [`--cert=${shown.cert}`, `--key=${shown.key}`] : []),
    ];
    return {
      program: this.#programs.etcdctl,
      args: [`--endpoints=${endpoints.join(",")}`, ...tls],
      env: etcdEnv(),
    };
  }

  /** Kills all members and removes their data. Idempotent. */
  async stop() {
    if (this.#stopped) return;
    this.#stopped = true;
    await Promise.all([...this.members, ...this.#added].map((member) => member.kill()));
    await this.#guardian.dismiss();
  }

  async [Symbol.asyncDispose]() {
    await this.stop();
  }
}
