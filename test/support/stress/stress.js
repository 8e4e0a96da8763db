// A seeded stress run: workers, an etcd of its own, faults by schedule, and the verdict.
import { cpSync, openSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { startEtcd } from "../etcd.js";
import { Guardian } from "../guarded.js";
import { startTcpProxy } from "../tcp-proxy.js";
import { Worker } from "./crew.js";
import { now, readJournal, record } from "./journal.js";
import { decode, encode, endOf, Observer } from "./observer.js";
import { Nemesis } from "./nemesis.js";
import { reportOf } from "./report.js";
import { planFaults } from "./schedule.js";
/** @import { EtcdCluster } from "../etcd.js" */
/** @import { TcpProxy } from "../tcp-proxy.js" */
/** @import { Run, Step } from "./history.js" */
/** @import { Report } from "./report.js" */

/**
 * @typedef {object} StressOptions
 * @property {string} seed
 * @property {number} seconds
 * @property {1 | 3} members
 * @property {number} [workers]
 * @property {number} [ttlSeconds]
 * @property {(line: string) => void} [say]
 * @property {string} [keep] a folder for the journals
 */

const ROOT = "stress/";
const PLACES = `${ROOT}lock/`;
const REGISTERS = `${ROOT}register/`;
const LOCKS = ["a", "b", "c", "d"].map((name) => PLACES + name);

/** @param {StressOptions} options @returns {Promise<Report>} */
export async function runStress(options) {
  const run = await Stress.start(options);
  try {
    await run.work();
    await run.settle();
    return await run.verdict();
  } finally {
    await run.stop();
  }
}

class Stress {
  /** @type {Required<StressOptions>} */ #options;
  #cluster;
  #links;
  #observer;
  #baseline;
  #guardian;
  #folder;
  #fd;
  #workers;

  /** @param {StressOptions} options */
  static async start(options) {
    const cluster = await startEtcd({ members: options.members });
    const folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-stress-"));
    const baseline = await leasesOf(cluster);
    const { revision } = await cluster.member.status();
    const links = await Promise.all(
      cluster.members.map(({ clientPort }) => startTcpProxy({ port: clientPort })),
    );
    return new Stress(options, { cluster, links, folder, baseline, revision });
  }

  /**
   * @param {StressOptions} options
   * @param {{ cluster: EtcdCluster, links: TcpProxy[], folder: string, baseline: readonly string[], revision: bigint }} ground
   */
  constructor(options, { cluster, links, folder, baseline, revision }) {
    this.#options = { workers: 4, ttlSeconds: 3, say: () => {}, keep: "", ...options };
    this.#cluster = cluster;
    this.#links = links;
    this.#folder = folder;
    this.#baseline = baseline;
    this.#guardian = new Guardian(folder);
    this.#fd = openSync(path.join(folder, "run.jsonl"), "a");
    this.#observer = new Observer(cluster.members, ROOT, revision + 1n);
    const { seed, workers, ttlSeconds } = this.#options;
    const task = {
      seed,
      hosts: links.map(({ endpoint }) => endpoint),
      locks: LOCKS,
      registers: REGISTERS,
      ttlSeconds,
    };
    const home = { folder, guardian: this.#guardian };
    this.#workers = Array.from({ length: workers }, (_, n) => new Worker(n, task, home));
  }

  /** Lets the faults happen; all are healed when it resolves. */
  async work() {
    const plan = planFaults(this.#options);
    const nemesis = new Nemesis({
      ...{ cluster: this.#cluster, links: this.#links, workers: this.#workers, observer: this.#observer },
      ...{ places: PLACES, say: this.#options.say },
      note: (step) => this.#note(step),
    });
    const all = delay(this.#options.seconds * 1000);
    await Promise.all([nemesis.inflict(plan.workers), nemesis.inflict(plan.etcd), all]);
  }

  /** Every call ends, every key goes while its session lives, then every lease goes: looked at in that order. */
  async settle() {
    const patience = 2 * (2 * this.#options.ttlSeconds + 5) * 1000;
    await Promise.all(this.#workers.map((worker) => worker.finish(patience)));
    const living = () => this.#observer.living(PLACES);
    await this.#observer.until(() => living().length === 0, { timeoutMs: patience });
    this.#note({ k: "leftovers", when: "idle", keys: living(), leases: [] });
    const ended = await Promise.all(this.#workers.map((worker) => worker.close(patience)));
    this.#workers.forEach(({ p }, n) => {
      if (!ended[n]) this.#note({ k: "crash", p, event: "exit", err: "did not end by itself" });
    });
    const leases = await this.#leasesLeft(patience);
    this.#note({ k: "leftovers", when: "end", keys: await this.#keys(), leases });
  }

  /** etcd tells nobody when a lease ends that had no keys: this has to ask again. @param {number} timeoutMs */
  async #leasesLeft(timeoutMs) {
    const until = performance.now() + timeoutMs;
    for (;;) {
      const leases = (await leasesOf(this.#cluster)).filter((lease) => !this.#baseline.includes(lease));
      if (leases.length === 0 || performance.now() > until) return leases;
      await delay(100);
    }
  }

  async #keys() {
    const range = { key: encode(PLACES), range_end: encode(endOf(PLACES)), keys_only: true };
    const { kvs = [] } = await this.#cluster.member.gateway("/v3/kv/range", range);
    return kvs.map((/** @type {{ key: string }} */ { key }) => decode(key));
  }

  /** @returns {Promise<Report>} */
  async verdict() {
    const mark = { key: encode(`${ROOT}end`), value: "" };
    const { header } = await this.#cluster.member.gateway("/v3/kv/put", mark);
    const last = BigInt(header.revision);
    const seen = await this.#observer.until(() => this.#observer.revision >= last, { timeoutMs: 10_000 });
    if (!seen) throw new Error("the observer did not see the end of the run");
    const run = this.#recorded();
    if (this.#options.keep !== "") this.#keep(run);
    return reportOf(run);
  }

  /** @returns {Run} */
  #recorded() {
    const files = [...this.#workers.map(({ journal }) => journal), path.join(this.#folder, "run.jsonl")];
    const history = /** @type {Step[]} */ (files.flatMap(readJournal)).sort((a, b) => Number(a.t - b.t));
    const { ttlSeconds } = this.#options;
    const setting = { ttlSeconds, locks: PLACES, registers: REGISTERS, revokesEarly: this.#mayRevokeEarly() };
    return { history, server: this.#observer.events, setting };
  }

  /** A member that led before it was stopped revokes living leases when it goes on, in etcd before these releases. */
  #mayRevokeEarly() {
    const [major = 0, minor = 0, patch = 0] = this.#cluster.version.split(".").map(Number);
    const repaired = { 4: 31, 5: 13 }[minor] ?? 0;
    return this.#options.members > 1 && major === 3 && patch < repaired;
  }

  /** @param {Run} run */
  #keep({ server }) {
    const fd = openSync(path.join(this.#folder, "server.jsonl"), "a");
    for (const event of server) record(fd, event);
    cpSync(this.#folder, this.#options.keep, { recursive: true });
  }

  async stop() {
    await Promise.all(this.#workers.map((worker) => worker.kill()));
    await this.#observer.stop();
    await Promise.all(this.#links.map((link) => link.stop()));
    await this.#cluster.stop();
    await this.#guardian.dismiss();
  }

  /** @param {object} step */
  #note(step) {
    record(this.#fd, { t: now(), p: "run", ...step });
  }
}

/** @param {EtcdCluster} cluster @returns {Promise<string[]>} */
async function leasesOf(cluster) {
  const { leases = [] } = await cluster.member.gateway("/v3/lease/leases", {});
  return leases.map((/** @type {{ ID: string }} */ { ID }) => BigInt(ID).toString(16));
}
