import type { Txn } from "../etcd/port.js";
import { HeldPlace } from "../hold/hold.js";
import { lastPlaces, positionOf } from "../queue/lock-mode.js";
import type { Lease } from "../session/lease.js";
import type { Place } from "../queue/entry.js";
import { Queue } from "../queue/queue.js";
import { Turn } from "../queue/predecessor-wait.js";
import type { Grant } from "../queue/waiter.js";

/** Waits until all of several places hold that were taken together. */
export class Gathering {
  /** All of them; `undefined` when one was lost, and so all were given back. */
  readonly held: Promise<readonly HeldPlace[] | undefined>;
  readonly #holds = new Map<Place, HeldPlace>();
  readonly #turns = new Map<Place, Turn>();
  #over = false;
  #resolve: (held: readonly HeldPlace[] | undefined) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(
    private readonly lease: Lease,
    private readonly places: readonly Place[],
    alone: boolean,
  ) {
    this.held = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    if (alone) for (const place of places) this.#grant(place, undefined, undefined);
    else void this.#look().catch((error: unknown) => this.#end(() => this.#reject(error as Error)));
  }

  /** A name that is not held yet, with our create revision under it. */
  get waitingFor(): { readonly name: string; readonly revision: bigint } {
    return this.places.find((place) => !this.#holds.has(place)) ?? (this.places[0] as Place);
  }

  /** Gives all of them back. */
  stop(): void {
    this.#end(() => this.#resolve(undefined));
  }

  /** Asks for the places before each of ours, all in one request. */
  async #look(): Promise<void> {
    const txn: Txn = {
      roots: this.places.map(({ name }) => name),
      when: [],
      then: this.places.map((place) => ({ kind: "range", ...lastPlaces(place) })),
      otherwise: [],
    };
    const { ranges } = await this.lease.connection.members.txn(txn, this.lease.policy("read the queues"));
    this.places.forEach((place, n) => {
      const told = ranges[n];
      if (told && !this.#over) this.#stand(place, positionOf(place, told));
    });
  }

  #stand(place: Place, position: ReturnType<typeof positionOf>): void {
    if (position === "gone") return this.stop();
    if (position === "first") return this.#grant(place, undefined, undefined);
    const outcome = {
      granted: (ownWatch: Grant["ownWatch"], deletedAt: Grant["deletedAt"]) =>
        this.#grant(place, ownWatch, deletedAt),
      gone: () => this.stop(),
      failed: (error: Error) => this.#end(() => this.#reject(error)),
    };
    this.#turns.set(place, new Turn(place, outcome, position));
  }

  #grant(place: Place, ownWatch: Grant["ownWatch"], deletedAt: Grant["deletedAt"]): void {
    this.#turns.delete(place);
    const hold = new HeldPlace(Queue.of(this.lease, place.name), { place, ownWatch, deletedAt });
    this.#holds.set(place, hold);
    // Lost while the others are waited for.
    hold.signal.addEventListener("abort", () => this.stop());
    if (this.#holds.size < this.places.length) return;
    this.#over = true;
    this.#resolve(this.places.map((each) => this.#holds.get(each) as HeldPlace));
  }

  #end(tell: () => void): void {
    if (this.#over) return;
    this.#over = true;
    for (const place of this.places) {
      this.#turns.get(place)?.stop();
      const hold = this.#holds.get(place);
      if (hold) void hold.release();
      else Queue.of(this.lease, place.name).leaveQuietly(place);
    }
    tell();
  }
}
