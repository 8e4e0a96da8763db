import type { KeyValue } from "../etcd/port.js";
import { entryKey, parseEntryValue, type EntryValue } from "../keys.js";
import type { EntryView, LockMode } from "./lock-mode.js";
import type { Lease } from "../session/lease.js";
import type { OwnedKey } from "../session/late-put-sweeper.js";

/** What an entry is made of. */
export interface EntryParts {
  readonly lease: Lease;
  readonly name: string;
  /** The n of `name/<lease>-n`. */
  readonly n: number;
  readonly mode: LockMode;
  /** A campaign puts its candidate's value, and an adopted entry keeps its value. */
  readonly value?: string | undefined;
}

/** An entry that is in the queue: etcd has reported its create revision. */
export interface JoinedEntry extends QueueEntry, EntryView {
  readonly revision: bigint;
}

/** One key of ours in a queue, identified by key and create revision, never by the key alone. */
export class QueueEntry implements OwnedKey {
  readonly lease: Lease;
  readonly name: string;
  readonly n: number;
  readonly mode: LockMode;
  readonly key: string;
  readonly value: string;
  readonly hasId: boolean;
  #revision: bigint | undefined;
  #unanswered = 0;
  #joinedBehind: bigint | undefined;
  #held = false;
  #leaving = false;

  constructor({ lease, name, n, mode, value }: EntryParts) {
    this.lease = lease;
    this.name = name;
    this.n = n;
    this.mode = mode;
    this.key = entryKey(this.directory, lease.leaseId, n);
    this.value = value ?? JSON.stringify(this.#newValue());
    this.hasId = value === undefined || parseEntryValue(value).id !== undefined;
  }

  /** Its key is `directory/<lease>`. */
  get directory(): string {
    return `${this.name}${this.mode.folder}`;
  }

  /** As etcd has it, and as users see it: with the prefix of the cluster. */
  get completeKey(): string {
    return `${this.lease.services.options.prefix}${this.key}`;
  }

  /** Create revision; undefined until etcd has reported it. */
  get revision(): bigint | undefined {
    return this.#revision;
  }

  /** An attempt to put the key was sent and not answered: it may still be applied. */
  get inDoubt(): boolean {
    return this.#unanswered > 0;
  }

  /** Create revision of the entry that its join found before it, if the answer contained one. */
  get joinedBehind(): bigint | undefined {
    return this.#joinedBehind;
  }

  /** It is granted. */
  get held(): boolean {
    return this.#held;
  }

  /** No caller needs it any longer. */
  get leaving(): boolean {
    return this.#leaving;
  }

  is(kv: KeyValue): boolean {
    return kv.createRevision === this.#revision && kv.key.toString() === this.key;
  }

  attemptUnanswered(): void {
    this.#unanswered++;
  }

  /** An attempt to put the key was executed earlier: an unanswered one of ours, or one that an intermediary sent twice. */
  foundExecuted(): void {
    if (this.#unanswered > 0) this.#unanswered--;
    else this.lease.services.path.requestsAreRepeated = true;
  }

  /** etcd has reported its create revision. */
  confirmed(revision: bigint): JoinedEntry {
    this.#revision = revision;
    return this as JoinedEntry;
  }

  /** The answer to its join contained the entry of this create revision before it. */
  foundBefore(revision: bigint | undefined): void {
    this.#joinedBehind = revision;
  }

  granted(): void {
    this.#held = true;
  }

  leaves(): void {
    this.#leaving = true;
  }

  #newValue(): EntryValue {
    const { clock } = this.lease.services;
    const { permits } = this.mode;
    return {
      owner: this.lease.owner,
      since: clock.date().toISOString(),
      id: clock.randomId().toString(36),
      ...(permits !== undefined && { permits }),
    };
  }
}
