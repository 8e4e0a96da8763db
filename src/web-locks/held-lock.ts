import { LockLostError } from "../errors.js";
import type { HoldHandle } from "../hold/hold.js";
import { printable } from "../printable.js";
import type { LockRequestArguments, WebLock, WebLockMode } from "./arguments.js";
import { publishGrant } from "./request-events.js";

type Callback = LockRequestArguments["callback"];

/** The argument of the callback. */
class GrantedLock implements WebLock {
  readonly #args: LockRequestArguments;
  readonly #hold: HoldHandle;

  constructor(args: LockRequestArguments, hold: HoldHandle) {
    this.#args = args;
    this.#hold = hold;
  }

  get name(): string {
    return this.#args.name;
  }

  get mode(): WebLockMode {
    return this.#args.mode;
  }

  get signal(): AbortSignal {
    return this.#hold.signal;
  }

  get revision(): bigint {
    return this.#hold.revision;
  }

  get key(): string {
    return this.#hold.key;
  }
}

/** Calls the callback. What it throws synchronously becomes a rejection, too. */
// eslint-disable-next-line @typescript-eslint/require-await
export async function invoke(callback: Callback, lock: WebLock | null): Promise<unknown> {
  return callback(lock);
}

/** A granted lock, held until the result of its callback has settled or the lock is lost. */
export class HeldWebLock {
  readonly #lost: Promise<never>;
  #lose: (loss: LockLostError) => void = () => {};

  constructor(
    private readonly args: LockRequestArguments,
    private readonly hold: HoldHandle,
    /** Called when the release begins, or the lock is lost. */
    private readonly onEnd: () => void,
  ) {
    this.#lost = new Promise((_, reject) => {
      this.#lose = (loss) => {
        onEnd();
        reject(abortError(args.name, loss));
      };
    });
  }

  /** Settles with the callback's result after the release. Rejects as soon as the lock is lost; the callback continues. */
  async run(): Promise<unknown> {
    const { signal } = this.hold;
    const ended = (): void => {
      if (signal.reason instanceof LockLostError) this.#lose(signal.reason);
    };
    signal.addEventListener("abort", ended, { once: true });
    ended();
    const work = signal.aborted ? this.#lost : this.#work();
    // After a loss, nothing else handles a rejection of `work`.
    work.catch(() => undefined);
    return Promise.race([work, this.#lost]);
  }

  /** Called when the manager is closed and no longer waits for the callback. */
  async end(): Promise<void> {
    const loss = new LockLostError(this.hold.name, this.hold.key, "closed");
    this.#lose(loss);
    this.hold.ended("closed", loss);
    await this.hold.release().catch(() => undefined);
  }

  async #work(): Promise<unknown> {
    let result: unknown;
    publishGrant(this.args);
    try {
      result = await invoke(this.args.callback, new GrantedLock(this.args, this.hold));
    } catch (error) {
      this.onEnd();
      await this.hold.release().catch(() => undefined);
      throw error;
    }
    this.onEnd();
    await this.hold.release().catch((loss: LockLostError) => {
      throw abortError(this.args.name, loss);
    });
    return result;
  }
}

const abortError = (name: string, loss: LockLostError): DOMException =>
  new DOMException(`Lock "${printable(name)}": ${loss.message}`, { name: "AbortError", cause: loss });
