import type { Scheduler } from "../event-queue.js";
import type { Random } from "../random.js";

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

export interface Message {
  readonly direction: Direction;
  readonly arrive: () => void;
  /** For the observer: the request, the answer, or what else it carries. */
  readonly what: unknown;
}

/** Sees the messages of a link and changes nothing. */
export interface LinkObserver {
  /** It arrives after so long, if nothing happens to the link. */
  sent(message: Message, delayMs: number): void;
  ended(message: Message, how: "arrived" | "held" | "lost"): void;
}

/** The path between one node and one member. */
export class Link {
  readonly connections = new Set<Resettable>();
  /** Ends the streams on the member's side: it notices a cut by itself. */
  readonly serverEnds = new Set<() => void>();
  observer: LinkObserver | undefined;
  /** Whether the connection is reset in place of the answer to this request, which was executed. */
  losesAnswerTo: ((request: unknown) => boolean) | undefined;
  #state: LinkState = "up";
  #held: Message[] = [];

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
  send(direction: Direction, arrive: () => void, what?: unknown): void {
    this.#transmit({ direction, arrive, what }, this.latencyMs());
  }

  /** As `send`, not before `time`. */
  sendAt(message: Message, time: number): void {
    this.#transmit(message, time - this.scheduler.now);
  }

  /** Drops what is held, and resets every connection. */
  reset(): void {
    this.#held = [];
    this.#cut();
  }

  /** The message never arrives. */
  lose(direction: Direction, what: unknown): void {
    const message = { direction, arrive: () => {}, what };
    this.observer?.sent(message, this.profile.latencyMs[1]);
    this.observer?.ended(message, "lost");
  }

  #cut(): void {
    for (const connection of [...this.connections]) connection.reset();
    for (const end of [...this.serverEnds]) end();
  }

  #transmit(message: Message, delayMs: number): void {
    this.observer?.sent(message, delayMs);
    this.scheduler.after(delayMs, () => this.#arrived(message));
  }

  #arrived(message: Message): void {
    const fate = this.#fateOf(message.direction);
    this.observer?.ended(message, fate);
    if (fate === "arrived") message.arrive();
    else if (fate === "held") this.#held.push(message);
  }

  #fateOf(direction: Direction): "arrived" | "held" | "lost" {
    if (this.#passes(direction)) return "arrived";
    if (this.#state !== "cut") return "held";
    return direction === "request" && this.random.chance(this.profile.late) ? "arrived" : "lost";
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

  send(arrive: () => void, what?: unknown): void {
    this.#messages.push(arrive);
    this.#last = Math.max(this.#last, this.link.scheduler.now + this.link.latencyMs());
    // Each arrival takes the oldest message: those that TCP repeats are not overtaken.
    const { direction } = this;
    this.link.sendAt({ direction, what, arrive: () => this.#messages.shift()?.() }, this.#last);
  }
}
