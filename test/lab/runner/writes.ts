import type { Context } from "./context.js";
import { failureOf, type HoldLog, type Op } from "./hold-log.js";
import type { Gripped } from "./subject.js";

/** Records the guarded writes of holders. */
export class Writes {
  constructor(
    private readonly context: Pick<Context, "register" | "p">,
    private readonly log: HoldLog,
  ) {}

  /** The last number that was written under the lock; undefined if there is no answer. */
  async read(op: Op): Promise<number | undefined> {
    const found = await this.context.register.read(op.lock).catch(() => undefined);
    if (found === undefined) return undefined;
    this.log.note("ok", "read", [op], { rev: found.rev, seq: found.seq });
    return found.seq;
  }

  /** false = stop using the hold */
  async write(place: Gripped, op: Op, { seq, nth }: { seq: number; nth: number }): Promise<boolean> {
    const { register, p } = this.context;
    const write = `${p}#${op.id}/${nth}`;
    this.log.note("invoke", "write", [op], { write });
    try {
      const { accepted, rev } = await register.write(place, { seq, write });
      this.log.note(accepted ? "ok" : "fail", "write", [op], { write, seq, ...(accepted && { rev }) });
      return accepted;
    } catch (error) {
      // The write may still be applied: no other write may follow it under this hold.
      this.log.note("info", "write", [op], { write, seq, ...failureOf(error) });
      return false;
    }
  }
}
