import type { Guardian } from "../../test/support/servers/guarded.js";
import type { Peer, Program } from "../peers/peers.js";
import { ContenderProcess } from "./contender-process.js";

/**
 * The processes of one peer, started on demand and reused, because starting them takes most of the time of a short run.
 */
export class Crew {
  readonly #processes: ContenderProcess[] = [];
  readonly #warm = new WeakSet<ContenderProcess>();
  readonly #guardian: Guardian;
  readonly #program: Program;

  /** Rejects with a `NotRunError` if the peer cannot be run. */
  static async of(peer: Peer, build: string | undefined, guardian: Guardian): Promise<Crew> {
    return new Crew(await peer.program(build), guardian);
  }

  private constructor(program: Program, guardian: Guardian) {
    this.#program = program;
    this.#guardian = guardian;
  }

  get version(): string {
    return this.#program.version;
  }

  async processes(count: number): Promise<readonly ContenderProcess[]> {
    const living = this.#processes.filter(({ ended }) => !ended);
    const missing = Array.from({ length: Math.max(0, count - living.length) }, () =>
      ContenderProcess.start(this.#program.command, this.#guardian),
    );
    this.#processes.splice(0, Infinity, ...living, ...(await Promise.all(missing)));
    return this.#processes.slice(0, count);
  }

  /** The processes that were not returned before: the caller warms them up. */
  cold(processes: readonly ContenderProcess[]): readonly ContenderProcess[] {
    const cold = processes.filter((process) => !this.#warm.has(process));
    for (const process of cold) this.#warm.add(process);
    return cold;
  }

  async stop(): Promise<void> {
    await Promise.all(this.#processes.splice(0).map((process) => process.kill()));
  }
}
