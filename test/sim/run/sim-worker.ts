import type { Cluster } from "../../../src/index.js";
import type { Clock } from "../../../src/base/util/clock.js";
import type { Member } from "../../../src/etcd/port.js";
import type { Context } from "../../lab/runner/context.js";
import { lanesOf, type Line } from "../../lab/runner/lanes.js";
import type { Of } from "../../lab/runner/subject.js";
import { nodeTime, type HistoryClock } from "./node-time.js";
import { SimRegister } from "./sim-register.js";

/** A simulated process, as far as its work needs it. */
export interface Machine {
  readonly cluster: Cluster;
  readonly clock: Clock;
  /** Returns a new connection to etcd, over the links of the machine. */
  readonly connect: () => Member;
}

export interface Work {
  readonly seed: string;
  readonly leasehold: Context["leasehold"];
  readonly of: Of;
  readonly locks: readonly string[];
  readonly registers: string;
  readonly ttlSeconds: number;
  readonly releaseDelayMs?: number | undefined;
  readonly lanes: number;
  readonly camp: number;
  readonly wanted?: boolean | undefined;
  readonly sticky?: boolean | undefined;
  readonly maxWaiting?: number | undefined;
  readonly newest?: boolean | undefined;
  readonly shards?: number | undefined;
  readonly calmMs: number;
  readonly valueBytes?: number | undefined;
  readonly history: HistoryClock;
  /** Records a step of the history of process `p`, and keeps the object. */
  readonly note: (step: object, p: string) => void;
}

/** The lanes of the lab in a simulated process. */
export class SimWorker {
  /** All lanes have finished what they were doing, or the process is dead. */
  idle = false;
  closed = false;
  readonly #lanes: readonly Line[];
  readonly #register: SimRegister;
  #finishing = false;
  #ids = 0;

  /** `p`: the incarnation of the process. */
  constructor(
    readonly p: string,
    private readonly machine: Machine,
    private readonly work: Work,
  ) {
    const { leasehold, registers } = work;
    this.#register = new SimRegister({
      ...{ connect: machine.connect, prefix: registers, guard: leasehold.whileHeld },
    });
    const context = this.#context();
    this.#lanes = lanesOf(context, work.lanes, work.seed);
  }

  start(): void {
    void Promise.all(this.#lanes.map((lane) => lane.run())).then(
      () => (this.idle = true),
      (error: unknown) => this.#crashed("lane", error),
    );
  }

  /** Starts nothing new. */
  finish(): void {
    this.#finishing = true;
  }

  /** The process is dead: nothing of it runs any more. */
  killed(): void {
    this.idle = this.closed = true;
  }

  close(): void {
    void this.#close().then(
      () => (this.closed = true),
      (error: unknown) => this.#crashed("close", error),
    );
  }

  async #close(): Promise<void> {
    await Promise.all(this.#lanes.map((lane) => lane.close()));
    await this.machine.cluster.close();
    this.#register.close();
  }

  #crashed(event: string, error: unknown): void {
    this.killed();
    this.work.note({ k: "crash", event, err: String((error as Error).stack ?? error) }, this.p);
  }

  #context(): Context {
    const { work, machine, p } = this;
    const {
      leasehold,
      of,
      locks,
      ttlSeconds,
      releaseDelayMs,
      camp,
      wanted = false,
      sticky = false,
      maxWaiting,
      newest,
      history,
      shards = 8,
      calmMs,
      valueBytes = 0,
    } = work;
    const time = nodeTime(history, machine.clock);
    return {
      ...{
        p,
        leasehold,
        of,
        locks,
        ttlSeconds,
        releaseDelayMs,
        camp,
        wanted,
        sticky,
        maxWaiting,
        newest,
        time,
        shards,
        calmMs,
        valueBytes,
        beats: undefined,
      },
      cluster: machine.cluster,
      register: this.#register,
      finishing: () => this.#finishing,
      note: (step) => work.note(step, p),
      nextId: () => ++this.#ids,
    };
  }
}
