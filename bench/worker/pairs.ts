import { setImmediate as nextTurn } from "node:timers/promises";
import type { Lockable } from "../peers/client.js";
import { now } from "./clock.js";

/** Pairs between two looks at the clock: one of a microsecond would be timed with its look, in code that V8 never compiles. */
const AT_ONCE = 32;
/** A client may need no turn of the event loop for its pairs: then the loop turns so often, for orders and renewals. */
const TURN_NS = 5e6;
const TIMEOUT_MS = 10_000;

/** One lock and its release after the other. A journal with a line for each pair would take longer than the pairs. */
export class Pairs {
  readonly journal: number[] = [];
  granted = 0;
  #stopped = false;
  #failure: Error | undefined;
  readonly #ended: Promise<void>;

  constructor(private readonly lockable: Lockable) {
    this.#ended = this.#run().catch((error: unknown) => void (this.#failure = error as Error));
  }

  async stop(close: () => Promise<void>): Promise<void> {
    this.#stopped = true;
    await this.#ended;
    await close();
    if (this.#failure !== undefined) throw this.#failure;
  }

  async #run(): Promise<void> {
    for (; !this.#stopped; await nextTurn()) {
      const [begun, before] = [now(), this.granted];
      let [at, pairNs] = [begun, NaN];
      while (at - begun < TURN_NS) {
        await this.#pairs();
        const ended = now();
        [at, pairNs] = [ended, (ended - at) / AT_ONCE];
      }
      this.journal.push(at, this.granted - before, pairNs);
    }
  }

  async #pairs(): Promise<void> {
    for (let n = 0; n < AT_ONCE; n++) {
      const held = await this.lockable.lock(TIMEOUT_MS);
      await held.release();
    }
    this.granted += AT_ONCE;
  }
}
