import type { Scheduler } from "../kernel/kernel.js";
import type { Random } from "../kernel/random.js";

/** How a link behaves while it is up. Probabilities are for one unary call. */
export interface LinkProfile {
  /** One way, evenly distributed between the two. */
  readonly latencyMs: readonly [number, number];
  /** Probability that a message takes up to `slowMs` instead: a call may be executed after its caller gave up. */
  readonly slow: number;
  readonly slowMs: number;
  /** The request is lost without a sign: not executed. */
  readonly loseRequest: number;
  /** The answer is lost without a sign: executed. */
  readonly loseAnswer: number;
  /** Probability that a request of a connection that is over is executed all the same. */
  readonly late: number;
}

export const CALM: LinkProfile = {
  latencyMs: [0.2, 2],
  slow: 0,
  slowMs: 0,
  loseRequest: 0,
  loseAnswer: 0,
  late: 0.5,
};

/**
 * "cut": every connection is reset, and new ones are refused. The others are silent: nothing arrives in that direction, and no
 * end of the connection reports it. TCP repeats what was sent meanwhile.
 */
export type LinkState = "up" | "cut" | "black hole" | "requests lost" | "answers lost";

export type Direction = "request" | "answer";

/** What the link resets. */
export interface Resettable {
  reset(): void;
}

interface HeldMessage {
  readonly direction: Direction;
  readonly arrive: () => void;
}

/** The path between one node and one member. */
export class Link {
  readonly connections = new Set<Resettable>();
  /** Ends the streams on the member's side: it notices a cut by itself. */
  readonly serverEnds = new Set<() => void>();
  #state: LinkState = "up";
  #held: HeldMessage[] = [];

  constructor(
    readonly scheduler: Scheduler,
    readonly random: Random,
    public profile: LinkProfile = CALM,
  ) {}

  get state(): LinkState {
    return this.#state;
  }

  set(state: LinkState): void {
    if (state === this.#state) return;
    this.#state = state;
    if (state === "cut") this.#cut();
    const held = this.#held;
    this.#held = [];
    for (const message of held) this.#transmit(message, this.latencyMs());
  }

  latencyMs(): number {
    const { latencyMs, slow, slowMs } = this.profile;
    const most = this.random.chance(slow) ? slowMs : latencyMs[1];
    return this.random.between(latencyMs[0], Math.max(latencyMs[0], most));
  }

  /** `arrive` runs in an event of its own, later if the link is silent, and never if the link is cut. */
  send(direction: Direction, arrive: () => void): void {
    this.#transmit({ direction, arrive }, this.latencyMs());
  }

  /** As `send`, not before `time`. */
  sendAt(direction: Direction, time: number, arrive: () => void): void {
    this.#transmit({ direction, arrive }, time - this.scheduler.now);
  }

  #cut(): void {
    for (const connection of [...this.connections]) connection.reset();
    for (const end of [...this.serverEnds]) end();
  }

  #transmit(message: HeldMessage, delayMs: number): void {
    this.scheduler.after(delayMs, () => this.#arrived(message));
  }

  #arrived(message: HeldMessage): void {
    if (this.#passes(message.direction)) message.arrive();
    else if (this.#state !== "cut") this.#held.push(message);
    else if (message.direction === "request" && this.random.chance(this.profile.late)) message.arrive();
  }

  #passes(direction: Direction): boolean {
    return (
      this.#state === "up" || this.#state === (direction === "request" ? "answers lost" : "requests lost")
    );
  }
}

/** The messages of one stream in one direction: they arrive in the order in which they were sent. */
export class OrderedPath {
  readonly #messages: (() => void)[] = [];
  #last = 0;

  constructor(
    private readonly link: Link,
    private readonly direction: Direction,
  ) {}

  send(arrive: () => void): void {
    this.#messages.push(arrive);
    this.#last = Math.max(this.#last, this.link.scheduler.now + this.link.latencyMs());
    // Each arrival takes the oldest message: those that TCP repeats are not overtaken.
    this.link.sendAt(this.direction, this.#last, () => this.#messages.shift()?.());
  }
}
