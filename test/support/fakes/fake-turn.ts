import type { Range } from "../../../src/etcd/port.js";
import { EntryBelow, exclusive, type LockMode } from "../../../src/lock/queue/lock-mode.js";
import { type JoinedEntry, QueueEntry } from "../../../src/lock/queue/entry.js";
import { PredecessorWait } from "../../../src/lock/queue/predecessor-wait.js";
import { settle } from "./fake-clock.js";
import { FakeCluster, HEADER } from "./fake-connection.js";
import { type FakeCall, type FakeWatch, keyValue } from "./fake-member.js";

/** Create revisions: our place joined at 50, its predecessor at 40, and the place before that at 30. */
export const MINE = 50n;
export const BELOW = 40n;
export const FIRST = 30n;
/** The watches are created at this revision, unless a test says otherwise. */
export const WATCHED = 60n;

export const placeKey = (revision: bigint): string => `jobs/${revision}`;

interface From {
  readonly ahead: number;
  /** The join has returned that the predecessor is the holder. */
  readonly holder?: boolean;
  /** The join has returned that the entry of `FIRST` is before the predecessor, and that it is the holder or not. */
  readonly before?: "holder" | "waiter";
}

/** A place in the queue `jobs` that waits for its turn behind the place of `BELOW`. */
export class WaitingTurn {
  readonly cluster = new FakeCluster();
  readonly clock = this.cluster.clock;
  readonly entry: JoinedEntry;
  readonly wait: PredecessorWait;
  /** How the turn ended. */
  readonly told: string[] = [];

  constructor(from?: From, mode: LockMode = exclusive, sticky = false) {
    const lease = this.cluster.lease();
    this.entry = new QueueEntry({ lease, name: "jobs", n: 1, mode, sticky }).confirmed(MINE);
    const outcome = {
      turnGranted: () => void this.told.push("granted"),
      keyGone: () => void this.told.push("gone"),
      waitFailed: (error: Error) => void this.told.push(`failed ${error.message}`),
    };
    this.wait = new PredecessorWait(
      this.entry,
      outcome,
      from && { state: "waiting", ahead: from.ahead, predecessor: predecessor(from) },
    );
    this.clock.advance(0);
  }

  /** The most recent watch stream. */
  get stream(): FakeWatch {
    const stream = this.cluster.connected.flatMap(({ watches }) => watches).at(-1);
    if (!stream) throw new Error("nothing is watched yet");
    return stream;
  }

  get reads(): FakeCall[] {
    return this.cluster.connected.flatMap((member) => member.of("range"));
  }

  get serializable(): (boolean | undefined)[] {
    return this.reads.map(({ request }) => (request as Range).serializable);
  }

  /** etcd creates the watch on the predecessor, or on the entry before it, and that on the own key where there is one. */
  async watched(revision = WATCHED, own = revision): Promise<void> {
    const { creates } = this.stream;
    const watches = (key: string): boolean => creates.some((create) => String(create.key) === key);
    this.stream.created(watches(placeKey(BELOW)) ? placeKey(BELOW) : placeKey(FIRST), revision);
    if (watches(this.entry.key)) this.stream.created(this.entry.key, own);
    await settle();
  }

  /**
   * The server answers the latest read: the places of `revisions` exist, latest first, and earlier ones if there are
   * `more`.
   */
  async answerRead(
    revisions: readonly bigint[],
    header: { revision?: bigint; memberId?: string } = {},
    more = false,
  ): Promise<void> {
    const kvs = revisions.map((createRevision) => {
      const key = createRevision === MINE ? this.entry.key : placeKey(createRevision);
      return keyValue({ key, createRevision, modRevision: createRevision });
    });
    this.reads.at(-1)?.answer({ header: { ...HEADER, revision: WATCHED, ...header }, kvs, more, count: 9 });
    await settle();
  }

  /** One revision deletes the places of `revisions`, which etcd reports in this order. */
  async deleted(revisions: bigint | readonly bigint[], at: bigint): Promise<void> {
    const keys = [revisions].flat().map((each) => (each === MINE ? this.entry.key : placeKey(each)));
    this.stream.deleted(keys, at);
    await settle();
  }

  /** What the watches made since the first `since` ones are on: a key, or the first and the last key of a range. */
  followed(since = 0): string[] {
    return this.stream.creates.slice(since).map(({ key, end }) => {
      const last = end === undefined ? "" : ` to ${String(end).replace(/\0$/, "")}`;
      return `${String(key)}${last}`;
    });
  }
}

const entryOf = (createRevision: bigint) => ({ key: Buffer.from(placeKey(createRevision)), createRevision });

function predecessor({ holder = false, before }: From): EntryBelow {
  const first = before && new EntryBelow(entryOf(FIRST), before === "holder");
  return new EntryBelow(entryOf(BELOW), holder, { before: first });
}
