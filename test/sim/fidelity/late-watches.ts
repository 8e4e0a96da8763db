import type { WatchAnswer } from "../../../src/etcd/port.js";
import type { Subject } from "./subjects/subject.js";

const KEY = "k";
const WATCHES = 25;
const PUTS = 40;
const AT_ONCE = 8;
const CALL = { timeoutMs: 5000 };
const LIMIT_MS = 30_000;

/**
 * How many watches from now on were late: writes overtook their registration, and the loop for late watches delivered them in one
 * answer. Writes and watches run side by side, in `rounds` rounds of 25 watches.
 */
export async function lateWatches(subject: Subject, rounds: number): Promise<number> {
  let late = 0;
  for (let n = 0; n < rounds; n++) late += await round(subject);
  return late;
}

async function round(subject: Subject): Promise<number> {
  const watches = new Round();
  const stream = subject.member.watch({
    answer: (answer) => watches.add(answer),
    ended: (error) => watches.fail(error),
  });
  for (let watchId = 1; watchId <= WATCHES; watchId++)
    stream.create({ watchId, key: KEY, startRevision: 0n, events: "ALL" });
  for (let n = 0; n < PUTS; n += AT_ONCE) await settled(subject, putSome(subject));
  await settled(subject, watches.allCreated);
  await settled(subject, putSome(subject));
  await settled(subject, watches.allServed);
  stream.close();
  return watches.late;
}

const putSome = (subject: Subject): Promise<unknown> =>
  Promise.all(Array.from({ length: AT_ONCE }, () => put(subject)));

const put = ({ member }: Subject): Promise<unknown> =>
  member.txns(
    [
      {
        ...{ queues: [KEY], compare: [], failure: [] },
        success: [{ kind: "put", key: KEY, value: "", leaseId: 0n }],
      },
    ],
    CALL,
  );

async function settled(subject: Subject, promise: Promise<unknown>): Promise<void> {
  if (!(await subject.wait(promise, LIMIT_MS))) throw new Error(`Expected an answer within ${LIMIT_MS} ms`);
  await promise;
}

/** The answers to the watches of a round. */
class Round {
  late = 0;
  readonly allCreated: Promise<void>;
  readonly allServed: Promise<void>;
  readonly #waiting = new Set<number>();
  #left = WATCHES;
  #created!: () => void;
  #served!: () => void;
  fail!: (error: Error) => void;

  constructor() {
    const failed = new Promise<never>((_, reject) => (this.fail = reject));
    this.allCreated = Promise.race([new Promise<void>((resolve) => (this.#created = resolve)), failed]);
    this.allServed = Promise.race([new Promise<void>((resolve) => (this.#served = resolve)), failed]);
    this.allServed.catch(() => undefined);
  }

  add({ watchId, created, events }: WatchAnswer): void {
    if (created) this.#waiting.add(watchId);
    if (created && this.#waiting.size === this.#left) this.#created();
    if (events.length === 0 || !this.#waiting.delete(watchId)) return;
    if (events.length > 1) this.late++;
    this.#left--;
    if (this.#left === 0) this.#served();
  }
}
