// Runs of a lock service that makes no mistakes, for the checker's own tests.
import type { Run } from "../runner/history.js";
import { Story } from "./story.js";

/** What a process does next, if it can. */
export interface Move {
  readonly process: number;
  readonly lock: number;
  /** 0..99: selects one of the possible actions. */
  readonly choice: number;
  readonly afterMs: number;
}

interface Waiter {
  readonly p: string;
  readonly id: number;
  readonly token: number;
  readonly key: string;
  readonly lock: string;
}

/** Plays the moves, then lets every process finish. */
export function perfectRun(moves: readonly Move[]): { run: Run; handOvers: number } {
  const service = new PerfectService();
  for (const move of moves) service.play(move);
  return service.finish();
}

class PerfectService {
  readonly #story = new Story();
  /** Per lock: the holder, then the waiters. */
  readonly #queues = new Map<string, Waiter[]>();
  readonly #seq = new Map<string, number>();
  readonly #places = new Map<string, Waiter>();
  #ids = 0;
  #at = 0;
  #rev = 1;
  #handOvers = 0;

  play({ process, lock, choice, afterMs }: Move): void {
    this.#at += 10 + afterMs;
    const p = `w${process}`;
    const place = this.#places.get(p);
    if (place === undefined) return this.#ask(p, `lock/${lock}`);
    const waits = this.#queue(place.lock)[0] !== place;
    if (waits) return choice < 30 ? this.#abort(place) : undefined;
    if (choice < 30) this.#claim(place);
    else if (choice < 60) this.#write(place);
    else if (choice < 95) this.#release(place);
    else this.#rob(place);
  }

  finish(): { run: Run; handOvers: number } {
    for (const queue of this.#queues.values())
      for (let head = queue[0]; head !== undefined; head = queue[0]) {
        this.#at += 10;
        this.#release(head);
      }
    this.#story.leftovers(this.#at + 10, "idle").leftovers(this.#at + 5000, "end");
    return { run: this.#story.run(), handOvers: this.#handOvers };
  }

  #ask(p: string, lock: string): void {
    const id = ++this.#ids;
    const token = ++this.#rev;
    const place = { p, id, token, lock, key: `${lock}/${p}` };
    this.#story.ask(this.#at, p, id, token, { lock });
    this.#places.set(p, place);
    const queue = this.#queue(lock);
    if (queue.push(place) === 1) this.#grant(place);
  }

  #grant({ p, id, token, lock }: Waiter): void {
    this.#story.grant(this.#at + 2, p, id, token, { lock });
  }

  #abort(place: Waiter): void {
    const { p, id } = place;
    this.#story.abort(this.#at, p, id).giveUp(this.#at, p, id, { turns: 0 });
    this.#story.del(this.#at + 1, ++this.#rev, place.key);
    this.#leave(place);
  }

  #claim({ p, id, token }: Waiter): void {
    this.#story.claim(this.#at, p, id, token);
  }

  #write({ p, id, token, lock }: Waiter): void {
    const seq = (this.#seq.get(lock) ?? 0) + 1;
    this.#seq.set(lock, seq);
    this.#story.read(this.#at, p, id, this.#rev).claim(this.#at + 1, p, id, token);
    this.#story.write(this.#at + 2, p, id, { token, seq, rev: ++this.#rev, lock });
  }

  #release(place: Waiter): void {
    const { p, id, lock } = place;
    this.#story.release(this.#at, p, id, ++this.#rev, { lock });
    this.#leave(place);
  }

  /** The key is deleted by hand; its owner continues for a moment. */
  #rob(place: Waiter): void {
    const { p, id, token, key } = place;
    this.#story.taken(this.#at, ++this.#rev, key).claim(this.#at + 5, p, id, token);
    this.#story.end(this.#at + 8, p, id, "deleted");
    this.#leave(place);
  }

  #leave(place: Waiter): void {
    const queue = this.#queue(place.lock);
    const held = queue[0] === place;
    queue.splice(queue.indexOf(place), 1);
    this.#places.delete(place.p);
    const [next] = queue;
    if (!held || next === undefined) return;
    this.#handOvers++;
    this.#grant(next);
  }

  #queue(lock: string): Waiter[] {
    const queue = this.#queues.get(lock) ?? [];
    this.#queues.set(lock, queue);
    return queue;
  }
}
