import type { KeyValue } from "../../etcd/port.js";
import { entryKey, pathOf, prefixEnd, prefixOf } from "../../keys.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { Lease } from "../../lock/session/lease.js";
import type { CallPolicy } from "../../etcd/retry.js";
import { checkInteger, checkShown, isWellFormed, rangeError, typeError } from "../../base/options/check.js";

/** Whether a member takes part: "joining" and "draining" members get nothing new. */
export type MembershipState = "joining" | "active" | "draining";

/** A member of a group, as every client reads it. */
export interface Member {
  /** Its name, by default the owner of its session. A member that gives one has the same name after a restart. */
  readonly id: string;
  /** What it wants the others to know, such as its address. */
  readonly value: string;
  /** The owner of its session. */
  readonly owner: string;
  /** Its weight: how much it takes in relation to the others. */
  readonly capacity: number;
  readonly zone: string | undefined;
  readonly state: MembershipState;
  readonly leaseId: bigint;
  readonly key: string;
  /** Create revision of `key`: the order in which the members have joined. */
  readonly revision: bigint;
  /** Modification revision of `key`: increases with each change. */
  readonly modRevision: bigint;
  /** bigints as decimal strings. */
  toJSON(): Readonly<Record<string, unknown>>;
}

/** What a member says of itself. */
export interface MemberFacts {
  readonly id: string;
  readonly value: string;
  readonly capacity: number;
  readonly zone: string | undefined;
  readonly state: MembershipState;
  /** What a recipe that is built on the group adds. */
  readonly shards?: unknown;
}

/** How a member stands in a group. */
export interface MemberOptions {
  /** Its name, 1 to 256 bytes: the same after a restart, and of no other live member. @default the owner of its session */
  readonly id?: string | undefined;
  /** Its weight: how much it takes in relation to the others, a whole number, 0..1000. 0: nothing. @default 1 */
  readonly capacity?: number | undefined;
  /**
   * The zone, rack or room in which it runs, 1 to 256 bytes. Most shards of a member that leaves go to members of its zone, as far as these
   * have room. @default none
   */
  readonly zone?: string | undefined;
}

const MAX_VALUE = 4096;
/** JSON makes six bytes of some characters. A value of ours has less, whatever it says. */
const MAX_STORED = 65_536;
const MAX_CAPACITY = 1000;

/** @throws {TypeError | RangeError} */
export function checkMemberValue(value: unknown): string {
  const rule = `a well-formed string of at most ${MAX_VALUE} bytes`;
  if (typeof value !== "string") throw typeError("value", rule, value);
  if (Buffer.byteLength(value) > MAX_VALUE || !isWellFormed(value)) throw rangeError("value", rule, value);
  return value;
}

/** @throws {TypeError | RangeError} */
export const checkCapacity = (value: unknown): number =>
  checkInteger("capacity", value, { min: 0, max: MAX_CAPACITY, fallback: 1 });

/** @throws {TypeError | RangeError} */
export function checkMemberText(option: "id" | "zone", value: unknown): string | undefined {
  if (value === "") throw rangeError(option, "a string of 1 to 256 bytes", value);
  return checkShown(option, value);
}

/** The directory of the members of a group. */
export const membersPath = (services: EtcdServices, name: string): string =>
  `${pathOf(services, name)}/members`;

export function membersRange(path: string): { readonly key: string; readonly end: string } {
  const key = prefixOf(path);
  return { key, end: prefixEnd(key) };
}

const STATES: readonly unknown[] = ["joining", "active", "draining"] satisfies MembershipState[];

const isText = (value: unknown, maxBytes: number): value is string =>
  typeof value === "string" && Buffer.byteLength(value) <= maxBytes;

/** undefined if it isn't the key of a member. Anybody may have written it: all that is kept is bounded. */
export function parseMember(kv: KeyValue): { readonly member: Member; readonly shards: unknown } | undefined {
  if (kv.leaseId === 0n || kv.value.length > MAX_STORED || !kv.value.startsWith("{")) return undefined;
  let parsed: Record<string, unknown>;
  try {
    parsed = JSON.parse(kv.value) as Record<string, unknown>;
  } catch {
    return undefined;
  }
  const { member: id, value, owner, capacity, zone, state, shards } = parsed;
  if (!isText(id, 256) || !isText(value, MAX_VALUE) || !isText(owner, 256)) return undefined;
  if (typeof capacity !== "number" || !Number.isInteger(capacity)) return undefined;
  if (capacity < 0 || capacity > MAX_CAPACITY || !STATES.includes(state)) return undefined;
  const data = {
    id,
    value,
    owner,
    capacity,
    zone: isText(zone, 256) ? zone : undefined,
    state: state as MembershipState,
    leaseId: kv.leaseId,
    key: kv.key.toString(),
    revision: kv.createRevision,
    modRevision: kv.modRevision,
  };
  const toJSON = (): ReturnType<Member["toJSON"]> => ({
    ...data,
    leaseId: data.leaseId.toString(),
    revision: data.revision.toString(),
    modRevision: data.modRevision.toString(),
  });
  // Not enumerable, so that logs and comparisons see only the data.
  const member = Object.defineProperty(data, "toJSON", { value: toJSON }) as unknown as Member;
  return { member, shards };
}

/** How many keys of members a lease has had in each directory: a number is used once, so a late put never meets a later key. */
const numbers = new WeakMap<Lease, Map<string, number>>();

function nextNumber(lease: Lease, path: string): number {
  const known = numbers.get(lease) ?? new Map<string, number>();
  const n = (known.get(path) ?? 0) + 1;
  numbers.set(lease, known.set(path, n));
  return n;
}

/** The key of one member, on the lease of its session. */
export class MemberKey {
  readonly key: string;
  readonly #path: string;
  /** Tells our value from one that an earlier attempt has put. */
  #version = 0;
  /** Modification revision of the key, as last seen; 0n: it isn't there. */
  #modified = 0n;
  #created = 0n;
  /** So many attempts to put it where it isn't there may be executed at any later time. */
  #inDoubt = 0;
  #last: Promise<unknown> = Promise.resolve();
  #putting = 0;

  constructor(
    readonly lease: Lease,
    private readonly name: string,
  ) {
    this.#path = membersPath(lease.services, name);
    this.key = entryKey(this.#path, lease.leaseId, nextNumber(lease, this.#path));
  }

  /** Create revision; 0n before the first answer. */
  get created(): bigint {
    return this.#created;
  }

  /** Modification revision of what was put last. */
  get modified(): bigint {
    return this.#modified;
  }

  /** Something is about to be put. */
  get putting(): boolean {
    return this.#putting > 0;
  }

  /** Stores what the member says, after the calls before; returns the keys of all members at that revision. Puts the key again if it is gone. */
  put(facts: MemberFacts): Promise<readonly KeyValue[]> {
    this.#putting++;
    const putting = this.#last.then(() => this.#put(facts)).finally(() => this.#putting--);
    this.#last = putting.catch(() => undefined);
    return putting;
  }

  /**
   * An unanswered attempt may be executed later. The compare of the modification revision protects what was put since from it. Each
   * attempt reads that revision until etcd has told it.
   */
  async #put({ id, value, capacity, zone, state, shards }: MemberFacts): Promise<readonly KeyValue[]> {
    const { lease, key } = this;
    const { owner } = lease;
    const stored = JSON.stringify({
      member: id,
      value,
      owner,
      capacity,
      zone,
      state,
      shards,
      version: ++this.#version,
    });
    const all = { kind: "range", ...membersRange(this.#path) } as const;
    for (;;) {
      const at = this.#modified;
      const onUnanswered = (): void => void (at === 0n && this.#inDoubt++);
      const { succeeded, header, ranges } = await lease.services.client.txn(
        {
          queues: [this.#path],
          compare: [
            at === 0n
              ? { kind: "created at", key, revision: 0n }
              : { kind: "modified at", key, revision: at },
          ],
          success: [{ kind: "put", key, value: stored, leaseId: lease.leaseId }, all],
          failure: [{ kind: "range", key }, all],
        },
        { ...this.#policy("tell the group"), onUnanswered },
      );
      const found = ranges[0]?.kvs[0];
      this.#modified = succeeded ? header.revision : (found?.modRevision ?? 0n);
      if (succeeded ? at === 0n : found) this.#created = found?.createRevision ?? header.revision;
      const isDone = succeeded || found?.value === stored;
      // It was one of those in doubt.
      if (isDone && !succeeded && at === 0n) this.#inDoubt = Math.max(0, this.#inDoubt - 1);
      if (isDone) return ranges[1]?.kvs ?? [];
    }
  }

  /** Deletes the key, if it is there or may be. Rejects only with the end of the session. */
  async delete(): Promise<void> {
    await this.#last;
    if (this.#created === 0n && this.#inDoubt === 0) return;
    const { key, lease } = this;
    const policy = { ...this.#policy("leave the group"), untilConfirmed: true };
    // No other key has its name, so whatever puts it from now on is a late attempt.
    const success = [{ kind: "delete", key }] as const;
    const txn = { queues: [this.#path], compare: [], success, failure: [] };
    const remove = (): Promise<unknown> => lease.services.client.txn(txn, policy);
    await remove();
    lease.sweeper.left(key, this.#inDoubt > 0, remove);
  }

  #policy(what: string): CallPolicy {
    return this.lease.policy(`${what} "${this.name}"`);
  }
}
