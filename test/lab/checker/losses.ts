// Stories of holders that lose their place.
import { Story } from "./story.js";

/** w1 holds from 1 ms on; w2 waits. */
export const held = () => new Story().ask(0, "w1", 1, 10).grant(1, "w1", 1, 10).ask(3, "w2", 1, 11);

/** w1 loses its place at `goneAt`, w2 is granted, and w1 is notified `after` that. */
export const lost = (after: number, goneAt = 2300, by: "del" | "expire" = "del") =>
  held()
    [by](goneAt, 12, "lock/a/w1")
    .grant(goneAt + 1, "w2", 1, 11)
    .end(goneAt + 0.5 + after, "w1", 1, "expired")
    .claim(goneAt + 3000, "w2", 1, 11)
    .release(goneAt + 3000, "w2", 1, 19);

/**
 * w1's place is deleted by hand at 1500 ms and w2 is granted at 1501 ms; w1 claims and is notified at the given times.
 */
export const robbed = ({ claimAt, toldAt }: { claimAt: number; toldAt: number }, story = held()) =>
  story
    .taken(1500, 12, "lock/a/w1")
    .grant(1501, "w2", 1, 11)
    .claim(claimAt, "w1", 1, 10)
    .end(toldAt, "w1", 1, "deleted")
    .claim(6000, "w2", 1, 11)
    .release(6000, "w2", 1, 19);
