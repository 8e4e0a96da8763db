// A simulated etcd with virtual time that a test advances itself.
import type { Timer } from "../../../src/base/util/clock.js";
import type { Operation, Txn, TxnAnswer } from "../../../src/etcd/port.js";
import {
  type SimVersion,
  type UnaryReply,
  type UnaryRequest,
  isRefusal,
} from "../../../src/testing/memory/protocol.js";
import { SimEtcd, type SimEtcdOptions } from "../../../src/testing/memory/etcd.js";
import type { Scheduler } from "../../../src/testing/memory/event-queue.js";
import { Random } from "../../../src/testing/memory/random.js";

/** Runs timers in the order of their times, when `advance` is called. */
export class ManualScheduler implements Scheduler {
  now = 0;
  readonly #timers: { readonly time: number; readonly run: () => void }[] = [];

  after(ms: number, run: () => void): Timer {
    return this.at(this.now + ms, run);
  }

  at(time: number, run: () => void): Timer {
    const timer = { time, run };
    const later = this.#timers.findIndex(({ time }) => time > timer.time);
    this.#timers.splice(later === -1 ? this.#timers.length : later, 0, timer);
    const cancel = (): void => {
      const index = this.#timers.indexOf(timer);
      if (index !== -1) this.#timers.splice(index, 1);
    };
    return { cancel };
  }

  /** Timers that have not run. */
  get pending(): number {
    return this.#timers.length;
  }

  advance(ms: number): void {
    const until = this.now + ms;
    for (let next = this.#timers[0]; next && next.time <= until; next = this.#timers[0]) {
      this.#timers.shift();
      this.now = next.time;
      next.run();
    }
    this.now = until;
  }
}

export function setUp(version: SimVersion = "3.6", seed = 1, options: Partial<SimEtcdOptions> = {}) {
  const scheduler = new ManualScheduler();
  const etcd = new SimEtcd({ scheduler, random: new Random(`${seed}`), version, ...options });
  const member = etcd.members[0]!;
  const call = (request: UnaryRequest): UnaryReply => {
    const replies: UnaryReply[] = [];
    member.call(request, (reply) => replies.push(reply));
    if (replies.length !== 1) throw new Error("not one reply");
    return replies[0]!;
  };
  /** The answer; throws a rejection's text. */
  const ask = <Answer>(request: UnaryRequest): Answer => {
    const reply = call(request);
    if (isRefusal(reply)) throw new Error(reply.refused);
    return reply.answer as Answer;
  };
  const run = (...success: readonly Operation[]): TxnAnswer =>
    ask<readonly TxnAnswer[]>({ kind: "txns", txns: [txn({ success })] })[0]!;
  return { scheduler, etcd, member, call, ask, run };
}

export const txn = (parts: Partial<Txn>): Txn => ({
  ...{ queues: [], compare: [], success: [], failure: [] },
  ...parts,
});
export const put = (key: string, value = "", leaseId = 0n): Operation => ({
  ...{ kind: "put", key, value, leaseId },
});
export const del = (key: string | Buffer): Operation => ({ kind: "delete", key });
