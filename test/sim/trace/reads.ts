import type { RangeAnswer } from "../../../src/etcd/port.js";
import type { EventOf } from "./events.js";
import type { Queues } from "./queue/queues.js";
import { readOf, type ReadRequest } from "./requests.js";
import type { Shown } from "./session/reads.js";

/** Reads of queues and of keys, alone or in a transaction. */
export class ReadCheck {
  readonly #sent = new Map<number, ReadRequest>();

  constructor(private readonly queues: Queues) {}

  rangeSent({ range, call }: EventOf<"range">): void {
    const read = readOf(range, this.queues.locks);
    this.#sent.set(call, read);
    this.sent(read, call);
  }

  rangeAnswered({ call, answer }: EventOf<"range answered">): void {
    const read = this.#sent.get(call) ?? { is: "other" };
    this.#sent.delete(call);
    this.answered(read, call, answer);
  }

  failed({ call }: EventOf<"failed">): void {
    this.#sent.delete(call);
  }

  sent(read: ReadRequest, call: number): void {
    if (read.is !== "queue") return;
    this.queues.count("read");
    const what = `the place created at ${read.place} reads the queue ${read.name}`;
    this.queues.ownerOf(read.name, read.place).queueReadSent(what, { ...read, call });
  }

  answered(read: ReadRequest, call: number, answer: RangeAnswer): void {
    if (read.is === "queue") {
      const what = `the place created at ${read.place} is answered what the queue ${read.name} is`;
      const session = this.queues.ownerOf(read.name, read.place);
      session.queueReadAnswered(what, { ...read, call }, shownBy(answer, read.place));
    } else if (read.is === "key") {
      const what = `session ${read.lease} is answered what ${read.key} is`;
      this.queues.sessionAt(read.key)?.keyReadAnswered(what, read.key, {
        created: Number(answer.kvs[0]?.createRevision ?? 0),
        revision: Number(answer.header.revision),
      });
    }
  }
}

const shownBy = ({ header, kvs: [own, below] }: RangeAnswer, place: number): Shown => {
  const mine = own !== undefined && Number(own.createRevision) === place;
  const before = mine && below ? Number(below.createRevision) : undefined;
  return { revision: Number(header.revision), mine, before };
};
