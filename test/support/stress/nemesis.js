// Breaks what the schedule says, when it says so, and heals it again.
import { setTimeout as delay } from "node:timers/promises";
import { HOLDER, LEADER } from "./schedule.js";
/** @import { EtcdCluster, EtcdMember } from "../etcd.js" */
/** @import { TcpProxy } from "../tcp-proxy.js" */
/** @import { Worker } from "./crew.js" */
/** @import { EtcdFault, WorkerFault } from "./history.js" */
/** @import { Observer } from "./observer.js" */
/** @import { Fault } from "./schedule.js" */

/**
 * @typedef {object} Field what there is to break
 * @property {EtcdCluster} cluster
 * @property {readonly TcpProxy[]} links between the workers and each member
 * @property {readonly Worker[]} workers
 * @property {Observer} observer
 * @property {string} places prefix of all locks' keys
 * @property {(step: object) => void} note
 * @property {(line: string) => void} say
 */

export class Nemesis {
  #field;

  /** @param {Field} field */
  constructor(field) {
    this.#field = field;
  }

  /**
   * One fault after the other: a member that starts slowly delays the next one. All are healed when it resolves.
   * @param {readonly Fault[]} faults
   */
  async inflict(faults) {
    const start = performance.now();
    for (const { atMs, lastsMs, fault, target } of faults) {
      await delay(Math.max(0, start + atMs - performance.now()));
      if (fault === "kill-worker" || fault === "pause-worker") await this.#onWorker(fault, target, lastsMs);
      else await this.#onEtcd(fault, target, lastsMs);
    }
  }

  /** @param {WorkerFault} fault @param {number} target @param {number} lastsMs */
  async #onWorker(fault, target, lastsMs) {
    const worker = this.#worker(target);
    const note = this.#begin(fault, worker.p, lastsMs);
    if (fault === "pause-worker") {
      worker.pause();
      await delay(lastsMs);
      worker.resume();
      return note();
    }
    await worker.kill();
    note();
    await delay(lastsMs);
    worker.restart();
  }

  /** @param {EtcdFault} fault @param {number} target @param {number} lastsMs */
  async #onEtcd(fault, target, lastsMs) {
    const { members } = this.#field.cluster;
    const member = target === LEADER ? await this.#leader() : members[target];
    const link = member && this.#field.links[members.indexOf(member)];
    if (member === undefined || link === undefined) return;
    const note = this.#begin(fault, member.name, lastsMs);
    await breakIt(fault, member, link);
    await delay(lastsMs);
    await heal(fault, member, link);
    note();
  }

  /** @param {WorkerFault | EtcdFault} fault @param {string} target @param {number} lastsMs */
  #begin(fault, target, lastsMs) {
    const { note, say } = this.#field;
    say(`${fault} ${target} for ${lastsMs} ms`);
    note({ k: "nemesis", fault, on: true, target });
    return () => note({ k: "nemesis", fault, on: false, target });
  }

  async #leader() {
    const { cluster } = this.#field;
    return cluster.leader({ timeoutMs: 2000 }).catch(() => cluster.member);
  }

  /** @param {number} target @returns {Worker} */
  #worker(target) {
    const { observer, places, workers } = this.#field;
    const [first] = /** @type {readonly [Worker]} */ (workers);
    if (target !== HOLDER) return workers[target] ?? first;
    const [head = ""] = observer.living(places);
    const put = observer.events.findLast(({ key }) => key === head);
    return workers.find(({ p }) => put?.value.includes(`"${p}/`)) ?? first;
  }
}

/** @param {EtcdFault} fault @param {EtcdMember} member @param {TcpProxy} link */
async function breakIt(fault, member, link) {
  switch (fault) {
    case "pause-member":
      return member.pause();
    case "kill-member":
      return member.kill();
    case "cut-link":
      return link.mode("blackhole");
    case "lose-answers":
      return link.drop("answers");
    case "slow-link":
      return link.delay(SLOW_MS);
  }
}
const SLOW_MS = 150;

/** @param {EtcdFault} fault @param {EtcdMember} member @param {TcpProxy} link */
async function heal(fault, member, link) {
  switch (fault) {
    case "pause-member":
      return member.resume();
    case "kill-member":
      return member.restart();
    case "cut-link":
      return link.mode("pass");
    case "lose-answers":
      return link.drop(undefined);
    case "slow-link":
      return link.delay(0);
  }
}
