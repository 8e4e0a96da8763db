// Group membership: who is there. One key for each member, on the lease of its session, so a member that has died leaves by itself.
import type { KeyValue } from "../../etcd/port.js";
import { checkName, checkOptions, checkSignal, checkWait } from "../../base/options/check.js";
import { withJson } from "../../base/telemetry/publish.js";
import { settleWithin } from "../../base/util/settle.js";
import { EtcdUnavailableError } from "../../errors.js";
import { type Cluster, leaseSourceOf, servicesOf, type SessionSource } from "../../lock/session/cluster.js";
import type { EtcdServices } from "../../lock/session/connection.js";
import type { Dependent, Lease } from "../../lock/session/lease.js";
import type { WaitOptions } from "../../lock/session/session-options.js";
import { Feed, QueueWatch } from "../../observe/queue-watch.js";
import {
  checkCapacity,
  checkMemberText,
  checkMemberValue,
  type Member,
  type MemberFacts,
  MemberKey,
  type MemberOptions,
  membersPath,
  membersRange,
  parseMember,
} from "./member.js";

const JOIN_TIMEOUT_MS = 10_000;

/** What a member may change of itself. */
export interface MemberChanges extends Pick<MemberOptions, "capacity" | "zone"> {
  readonly value?: string | undefined;
  /** "draining" tells the others that it is about to leave. @default as it is */
  readonly state?: "active" | "draining" | undefined;
}

/** A place in a group. */
export interface Membership extends AsyncDisposable {
  readonly name: string;
  readonly id: string;
  readonly key: string;
  /** The lease that the place goes with. */
  readonly leaseId: bigint;
  /** Aborts when the session ends: the others see the member no more, or won't soon. */
  readonly signal: AbortSignal;
  /**
   * Tells the others what has changed, and resolves when etcd has stored it. Puts the key again if somebody has deleted it.
   * @throws {SessionLostError | SessionClosedError} when the session is over.
   * @throws {EtcdRefusedError} if etcd rejects the request. @throws {TypeError | RangeError} on bad values.
   */
  update(changes: MemberChanges): Promise<void>;
  /** Leaves the group. Resolves when the key is gone, or the session is over. Idempotent. */
  leave(): Promise<void>;
}

class MembershipHandle implements Membership {
  #facts: MemberFacts;
  #leaving: Promise<void> | undefined;
  readonly #place: MemberKey;
  /** Its session is in use, though nothing is held or awaited. Each member counts: a session may have several. */
  readonly #user: Dependent = { sessionEnded: () => undefined };

  constructor(
    readonly name: string,
    place: MemberKey,
    facts: MemberFacts,
  ) {
    [this.#place, this.#facts] = [place, facts];
    place.lease.waits.add(this.#user);
  }

  get id(): string {
    return this.#facts.id;
  }

  get key(): string {
    return this.#place.key;
  }

  get leaseId(): bigint {
    return this.#place.lease.leaseId;
  }

  get signal(): AbortSignal {
    this.#place.lease.refresh();
    return this.#place.lease.signal;
  }

  async update(changes: MemberChanges): Promise<void> {
    const given = checkOptions("update", changes, ["value", "capacity", "zone", "state"]);
    const { value, capacity, zone, state } = given as MemberChanges;
    if (state !== undefined && state !== "active" && state !== "draining")
      throw new RangeError(`Expected state to be "active" or "draining", got ${JSON.stringify(state)}`);
    this.#facts = {
      ...this.#facts,
      ...(value !== undefined && { value: checkMemberValue(value) }),
      ...(capacity !== undefined && { capacity: checkCapacity(capacity) }),
      ...("zone" in given && { zone: checkMemberText("zone", zone) }),
      ...(state !== undefined && { state }),
    };
    this.#place.lease.assertOpen();
    if (this.#leaving) throw new TypeError(`This member has left the group "${this.name}"`);
    await this.#place.put(this.#facts);
  }

  leave(): Promise<void> {
    // After the end of the session, the key ends with the lease.
    return (this.#leaving ??= this.#place
      .delete()
      .catch(() => undefined)
      .finally(() => this.#place.lease.waits.delete(this.#user)));
  }

  toJSON(): Readonly<Record<string, unknown>> {
    const { name, id, key, leaseId } = this;
    return { name, id, key, leaseId: leaseId.toString() };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.leave();
  }
}

/**
 * Joins a group: the others see this member, with `value`, in `members()`, as long as the session lives. Joining takes one request. With
 * a Cluster as the source, the place goes with its standing session: when that is lost, `signal` aborts, and a further `join` is up to you.
 *
 * `timeoutMs` defaults to 10000. On abort: rejects at once with the signal's reason, and leaves the group in the background.
 * @param value at most 4096 bytes, such as the member's address.
 * @throws {EtcdUnavailableError} when etcd does not answer in time. @throws {EtcdRefusedError} when etcd rejects the request.
 * @throws {SessionLostError | SessionClosedError} when the session is over.
 * @throws {TypeError | RangeError} on bad arguments.
 */
// eslint-disable-next-line max-params -- public: the options come last, as everywhere
export async function join(
  source: SessionSource,
  name: string,
  value: string,
  options?: MemberOptions & WaitOptions,
): Promise<Membership> {
  const leases = leaseSourceOf(source);
  checkName(`${checkName(name)}/members`);
  checkMemberValue(value);
  const { signal, timeoutMs = JOIN_TIMEOUT_MS } = checkWait("join", options, ["id", "capacity", "zone"]);
  const capacity = checkCapacity(options?.capacity);
  const [id, zone] = [checkMemberText("id", options?.id), checkMemberText("zone", options?.zone)];
  signal?.throwIfAborted();
  const lease = await leases.lease({ signal, timeoutMs });
  lease.assertOpen();
  const facts: MemberFacts = { id: id ?? lease.owner, value, capacity, zone, state: "active" };
  return joined(lease, { name, facts }, { signal, timeoutMs });
}

async function joined(
  lease: Lease,
  { name, facts }: { readonly name: string; readonly facts: MemberFacts },
  wait: { readonly signal: AbortSignal | undefined; readonly timeoutMs: number },
): Promise<Membership> {
  const { services } = lease;
  const place = new MemberKey(lease, name);
  const membership = new MembershipHandle(name, place, facts);
  const what = `join the group "${name}"`;
  // A put that is still on its way is followed by the deletion.
  const leave = (): void => void membership.leave();
  const joining = place.put(facts);
  const settled = settleWithin(joining, wait, services, {
    onTimeout: () => new EtcdUnavailableError(what, services.client.hosts.whyUnanswered(wait.timeoutMs)),
    onGiveUp: leave,
  });
  try {
    await settled;
    return membership;
  } catch (error) {
    leave();
    throw error;
  }
}

/** Who was in a group at one revision of etcd. */
export interface MemberList {
  readonly name: string;
  readonly revision: bigint;
  /** In the order in which they have joined. */
  readonly members: readonly Member[];
}

interface SeenMember extends Pick<KeyValue, "createRevision" | "modRevision"> {
  readonly member: Member | undefined;
}

class MemberFeed extends Feed<MemberList> {
  constructor(services: EtcdServices, name: string, signal: AbortSignal | undefined) {
    super({
      services,
      signal,
      // Only the latest list matters.
      maxUnread: 1,
      same: ({ members: a }, { members: b }) =>
        a.length === b.length && a.every(({ modRevision }, n) => modRevision === b[n]?.modRevision),
      start: ({ item, failed }) =>
        new QueueWatch<SeenMember>(
          {
            services,
            range: membersRange(membersPath(services, name)),
            what: `observe the group "${name}"`,
            keep: (kv) => ({
              createRevision: kv.createRevision,
              modRevision: kv.modRevision,
              member: parseMember(kv)?.member,
            }),
          },
          {
            changed: ({ keys, revision }) => {
              const members = [...keys.values()].flatMap(({ member }) => member ?? []);
              item(withJson({ name, revision, members }));
            },
            failed,
          },
        ),
    });
  }
}

/**
 * Iterates over the list of a group's members: first as it is, then after each change. A slow loop gets the latest list, not
 * each. One watch, no session. Ends when the loop ends.
 *
 * On abort: `next()` rejects with the signal's own reason.
 * @throws {SessionClosedError} from `next()` when the cluster is closed. @throws {EtcdRefusedError} from `next()` if etcd refuses the reads.
 * @throws {TypeError | RangeError} on bad arguments.
 */
export function members(
  cluster: Cluster,
  name: string,
  options?: { readonly signal?: AbortSignal | undefined },
): AsyncIterableIterator<MemberList> {
  const services = servicesOf(cluster);
  checkName(name);
  const { signal } = checkOptions("members", options, ["signal"]);
  return new MemberFeed(services, name, checkSignal(signal));
}
