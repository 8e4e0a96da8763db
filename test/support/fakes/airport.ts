import type { CallPolicy } from "../../../src/etcd/retry.js";
import type { Txn } from "../../../src/etcd/port.js";
import { settle } from "./fake-clock.js";
import { FakeCluster, HEADER } from "./fake-connection.js";
import type { FakeCall } from "./fake-member.js";

const ONE_MEMBER = { hosts: "a:1" };

type Kind = "join" | "leave";
export const txnOf = (roots: readonly string[], kind: Kind = "join"): Txn => ({
  queues: roots,
  compare: [{ kind: "created at", key: `${roots[0] ?? ""}/1`, revision: 0n }],
  success:
    kind === "leave"
      ? [{ kind: "delete", key: `${roots[0] ?? ""}/1` }]
      : [{ kind: "put", key: `${roots[0] ?? ""}/1`, value: "", leaseId: 7n }],
  failure: [],
});

/** The transactions of a call: one, or those of a batch. */
export const txnsOf = ({ request }: FakeCall) =>
  (Array.isArray(request) ? request : [request]) as readonly Txn[];
export const namesOf = (call: FakeCall) => txnsOf(call).map(({ queues }) => queues.join("+"));

/** A cluster whose transactions are sent, answered and failed under the test's control. */
export class Airport {
  readonly cluster: FakeCluster;
  /** Every request with transactions, in the order of sending, whatever its outcome. */
  readonly sent: FakeCall[] = [];
  /** How each transaction ended, in the order of the ends: its names, or its names and its error. */
  readonly ends: string[] = [];
  readonly errors = new Map<string, unknown>();
  readonly #out = new Set<FakeCall>();
  /** The maximum number of requests in flight at a time, by connection. */
  most = 0;

  constructor(options: Readonly<Record<string, unknown>> = ONE_MEMBER) {
    this.cluster = new FakeCluster(options);
    this.cluster.onCall = (call) => {
      if (call.method === "authenticate") return call.answer("token");
      this.sent.push(call);
      this.#out.add(call);
      const mine = this.cluster.member.calls.filter((other) => this.#out.has(other));
      this.most = Math.max(this.most, mine.length);
    };
  }

  /** Each call sends a transaction on its name; the promise resolves with how it ended. */
  send(names: readonly string[], policy: Partial<CallPolicy> = {}, kind: Kind = "join"): Promise<unknown>[] {
    return names.map((name) => {
      const txn = txnOf(name.split("+"), kind);
      const outcome = this.cluster.client.txn(txn, { what: "test", ...policy });
      return outcome.then(
        () => this.ends.push(name),
        (error: unknown) => {
          this.ends.push(`${name} failed`);
          this.errors.set(name, error);
        },
      );
    });
  }

  /** Like `send`, in a turn of its own: those that are sent then find it in flight. */
  async sendFirst(name: string): Promise<Promise<unknown>[]> {
    const sent = this.send([name]);
    await settle();
    return sent;
  }

  /** Turns the event loop once: waiting transactions are sent as far as they may be. */
  async turn(): Promise<void> {
    const { clock } = this.cluster;
    await settle();
    clock.after(0, () => {});
    await clock.pass(0);
  }

  get out(): FakeCall[] {
    return [...this.#out];
  }

  async land(call: FakeCall): Promise<void> {
    this.#out.delete(call);
    const answers = txnsOf(call).map(() => ({ header: HEADER, succeeded: true, ranges: [] }));
    call.answer(call.method === "batch" ? answers : answers[0]);
    await this.turn();
  }

  async fail(call: FakeCall, error: Error): Promise<void> {
    this.#out.delete(call);
    call.fail(error);
    await this.turn();
  }

  /** A cancelled request is no longer in flight. */
  forget(call: FakeCall): void {
    this.#out.delete(call);
  }

  /** Answers everything that is in flight, and what is sent then, until nothing is in flight. */
  async landAll(): Promise<void> {
    while (this.#out.size > 0) for (const call of this.out) await this.land(call);
  }
}

export const numbered = (count: number, prefix = "n") =>
  Array.from({ length: count }, (_, n) => `${prefix}${n}`);
