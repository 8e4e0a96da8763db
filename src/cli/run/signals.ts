import os from "node:os";
import { EXIT } from "../command-line/exit.js";

const FORWARDED = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"] as const;

/** The signals that this process gets for its command. */
export class CommandSignals {
  /** Aborts when a signal is to end this program before there is a command. */
  readonly signal: AbortSignal;
  #receiver: ((name: NodeJS.Signals) => void) | undefined;
  readonly #quit = new AbortController();
  readonly #stops: (() => void)[] = [];

  /**
   * @param ended SIGINT, SIGTERM or SIGHUP has arrived
   * @param ending the signals that abort `ended`
   */
  constructor(
    ended: AbortSignal,
    private readonly ending: Set<NodeJS.Signals>,
  ) {
    this.signal = AbortSignal.any([ended, this.#quit.signal]);
    for (const name of FORWARDED) {
      const heard = (): void => this.#heard(name);
      process.on(name, heard);
      this.#stops.push(() => process.off(name, heard));
    }
  }

  /** Takes the signals while there is a command. SIGHUP is for the command alone then; the others end this program, too. */
  set receiver(receiver: ((name: NodeJS.Signals) => void) | undefined) {
    this.#receiver = receiver;
    if (receiver) this.ending.delete("SIGHUP");
    else this.ending.add("SIGHUP");
  }

  /** 128 plus the number of the signal that ended the program before there was a command. */
  get exitCode(): number | undefined {
    const name = this.signal.reason as NodeJS.Signals;
    return this.signal.aborted ? EXIT.signal + os.constants.signals[name] : undefined;
  }

  stop(): void {
    for (const stop of this.#stops) stop();
  }

  #heard(name: NodeJS.Signals): void {
    this.#receiver?.(name);
    if (name === "SIGQUIT") this.#quit.abort(name);
  }
}
