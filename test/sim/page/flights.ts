import type { LinkObserver, Message } from "../../../src/testing/memory/network/link.js";
import type { SimCrew } from "../run/sim-crew.js";
import { describe } from "./describe.js";
import type { Flight } from "./protocol.js";

/** At high speeds, more are not discernible. */
const MOST = 60;
/** So long, in real milliseconds, a message that has ended is still shown. */
const SHOWN_MS = 450;

interface Seen {
  readonly flight: Flight;
  readonly endedAt: number;
}

/** The messages that are on their way, and those that have just ended. */
export class Flights {
  readonly #flying = new Map<Message, Flight>();
  #ended: Seen[] = [];
  #ids = 0;

  constructor(
    crew: Pick<SimCrew, "nodes">,
    private readonly kernel: { readonly now: number },
  ) {
    for (const [process, { links }] of crew.nodes.entries())
      for (const [member, link] of links.entries()) link.observer = this.#observer(process, member);
  }

  view(): Flight[] {
    const shownFrom = performance.now() - SHOWN_MS;
    this.#ended = this.#ended.filter(({ endedAt }) => endedAt >= shownFrom);
    const flying = [...this.#flying.values()];
    return [...this.#ended.map(({ flight }) => flight), ...flying].slice(-MOST);
  }

  #observer(process: number, member: number): LinkObserver {
    return {
      sent: (message, delayMs) => this.#sent(message, delayMs, { process, member }),
      ended: (message, how) => this.#endedAs(message, how),
    };
  }

  #sent(message: Message, delayMs: number, ends: Pick<Flight, "process" | "member">): void {
    const { now } = this.kernel;
    // A message that a silent link has held is sent again.
    const id = this.#flying.get(message)?.id ?? ++this.#ids;
    const { direction, what } = message;
    const flight = { id, ...ends, direction, ...describe(what, direction) };
    this.#flying.set(message, { ...flight, sent: now, due: now + delayMs, fate: "flying" });
  }

  #endedAs(message: Message, fate: "arrived" | "held" | "lost"): void {
    const flight = this.#flying.get(message);
    if (flight === undefined) return;
    if (fate === "held") return void this.#flying.set(message, { ...flight, fate });
    this.#flying.delete(message);
    this.#ended.push({ flight: { ...flight, fate }, endedAt: performance.now() });
    if (this.#ended.length > MOST) this.#ended.shift();
  }
}
