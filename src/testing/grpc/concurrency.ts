// The services v3lock and v3election, by which jetcd locks and elects: the member does what Go's package `concurrency` does in a client
// (server/etcdserver/api/v3lock, v3election).
import type { LeaseAnswer, WatchAnswer } from "../../etcd/port.js";
import { createdAt, type KvAnswer, type KvPut, type KvRange, type KvRequest } from "../memory/kv.js";
import { isRefusal, type Refusal, type UnaryRequest } from "../memory/protocol.js";
import { bytesOf, bytesOfValue, type StoredKeyValue } from "../memory/store.js";
import { rangeOfPrefix } from "../memory/users.js";
import { kvMessage } from "./kv.js";
import { headerOf, type ServedMember, type WithHeader } from "./member.js";
import {
  type Answer,
  HEADER_ONLY,
  type HeaderMessage,
  KEY_VALUE,
  type KeyValueMessage,
  header,
} from "./messages.js";
import type { Message } from "./codec.js";
import { type Duplex, type Metadata, type Method, NO_REQUEST, type Out, streaming } from "./server.js";

/** The messages of both (v3lock.proto, v3election.proto). */

interface Named {
  readonly name: Buffer;
  readonly leaseId: bigint;
}

export const LOCK_REQUEST: Message<Named> = { name: [1, "bytes"], leaseId: [2, "int64"] };
export const KEY_REQUEST: Message<{ readonly key: Buffer }> = { key: [1, "bytes"] };
export const KEY_RESPONSE: Message<Answer & { readonly key: Buffer }> = { header, key: [2, "bytes"] };

interface LeaderKey extends Named {
  readonly key: Buffer;
  readonly revision: bigint;
}

const LEADER_KEY: Message<LeaderKey> = {
  name: [1, "bytes"],
  key: [2, "bytes"],
  revision: [3, "int64"],
  leaseId: [4, "int64"],
};

export const CAMPAIGN_REQUEST: Message<Named & { readonly value: Buffer }> = {
  name: [1, "bytes"],
  leaseId: [2, "int64"],
  value: [3, "bytes"],
};
export const CAMPAIGN_RESPONSE: Message<Answer & { readonly leader: LeaderKey }> = {
  header,
  leader: [2, () => LEADER_KEY],
};
export const PROCLAIM_REQUEST: Message<{ readonly leader?: LeaderKey; readonly value: Buffer }> = {
  leader: [1, () => LEADER_KEY],
  value: [2, "bytes"],
};
export const RESIGN_REQUEST: Message<{ readonly leader?: LeaderKey }> = { leader: [1, () => LEADER_KEY] };
export const NAMED_REQUEST: Message<Pick<Named, "name">> = { name: [1, "bytes"] };

interface LeaderResponse {
  readonly header: HeaderMessage;
  readonly kv: KeyValueMessage;
}

export const LEADER_RESPONSE: Message<LeaderResponse> = { header, kv: [2, () => KEY_VALUE] };

/** A refusal on its way to the client. */
class RefusedError extends Error {
  constructor(readonly refusal: Refusal) {
    super(refusal.refused);
  }
}

/** Go's errors reach the client with the code "unknown". */
const failed = (refused: string): RefusedError => new RefusedError({ refused, code: 2 });

const INTERNAL = 13;

/** The lease of a call that names none. */
const TTL_SECONDS = 60;
const NO_BYTES = Buffer.alloc(0);

const NEWEST_FIRST = { order: "newest first" } as const;
const READ = { kind: "range", limit: 1, order: "oldest first" } as const;

/** The keys of a queue. */
function keysOf(name: Buffer): Record<"key" | "end", Buffer> {
  const { key, end = "" } = rangeOfPrefix(`${name.toString()}/`);
  return { key: Buffer.from(key, "latin1"), end: Buffer.from(end, "latin1") };
}

type Of<Kind extends KvAnswer["kind"]> = Extract<KvAnswer, { kind: Kind }>;
type WithKv<Kind extends KvAnswer["kind"]> = WithHeader & { readonly kv: Of<Kind> };

/** One call, and the requests that it makes as a client. */
class Caller {
  #over = false;
  #closeWatch: (() => void) | undefined;

  constructor(
    private readonly member: ServedMember,
    private readonly metadata: Metadata,
  ) {}

  /** The client has gone: what waits for it ends. */
  close(): void {
    this.#over = true;
    this.#closeWatch?.();
  }

  ask<Answer>(request: UnaryRequest): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.member.ask<Answer>(request, this.metadata, (answer) => {
        if (isRefusal(answer as object)) reject(new RefusedError(answer as Refusal));
        else resolve(answer as Answer);
      });
    });
  }

  kv<Kind extends KvRequest["kind"]>(request: KvRequest & { kind: Kind }): Promise<WithKv<Kind>> {
    return this.ask<WithKv<Kind>>({ kind: "kv", request });
  }

  async first(range: Pick<KvRange, "key" | "end"> & Partial<KvRange>) {
    const { kv, header } = await this.kv<"range">({ ...READ, ...range });
    return { found: kv.kvs[0], header };
  }

  /** Puts a key for the lease unless it has one, and resolves with the key when no older one is before it. */
  async lock(name: Buffer, lease: bigint, value: Buffer): Promise<StoredKeyValue & WithHeader> {
    const leaseId = lease === 0n ? await this.#grant() : lease;
    const key = Buffer.concat([name, Buffer.from(`/${BigInt.asUintN(64, leaseId).toString(16)}`)]);
    const put: KvPut = { kind: "put", key, value, leaseId };
    const own = { key };
    const compare = [createdAt(key, 0n)];
    const { kv: joined } = await this.kv<"txn">({
      kind: "txn",
      compare,
      success: [put],
      failure: [{ ...READ, ...own }],
    });
    const { found: mine } = await this.first(own);
    if (mine === undefined) throw failed("mutex: session is expired");
    try {
      // The lease had a key there already, as a leader has that campaigns once more.
      if (!joined.succeeded && !bytesOfValue(mine).equals(value)) await this.kv<"put">(put);
      const older = { ...keysOf(name), ...NEWEST_FIRST, maxCreateRevision: mine.createRevision - 1n };
      for (;;) {
        const { found, header } = await this.first(older);
        if (found === undefined) break;
        await this.#deleted(found.key, header.revision + 1n);
      }
      const { found, header } = await this.first(own);
      if (found?.createRevision !== mine.createRevision) throw failed("mutex: session is expired");
      return { ...found, header };
    } catch (error) {
      void this.remove(key, mine.createRevision).catch(() => {});
      throw error;
    }
  }

  /** Deletes a key if it still is the one of that revision. */
  remove(key: Buffer, revision: bigint): Promise<WithKv<"txn">> {
    const deletion: KvRequest = { kind: "delete", key };
    return this.kv<"txn">({
      ...{ kind: "txn", compare: [createdAt(key, revision)], success: [deletion], failure: [] },
    });
  }

  async #grant(): Promise<bigint> {
    const { leaseId } = await this.ask<LeaseAnswer>({ kind: "grant", leaseId: 0n, ttlSeconds: TTL_SECONDS });
    return leaseId;
  }

  #deleted(key: Buffer, startRevision: bigint): Promise<void> {
    return this.watch({ key, startRevision, events: "DELETE" }, () => true);
  }

  /** Resolves when `isLast` says so of the events of an answer. Rejects when the client has gone. */
  watch(
    what: { key: Buffer; end?: Buffer; startRevision: bigint; events: "ALL" | "DELETE" },
    isLast: (answer: WatchAnswer) => boolean,
  ): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.#over) return void reject(failed("context canceled"));
      const take = (answer: WatchAnswer | Refusal): void => {
        if (isRefusal(answer)) end(() => reject(new RefusedError(answer)));
        else if (answer.cancelled) end(() => reject(failed(answer.cancelReason)));
        else if (answer.events.length > 0 && isLast(answer)) end(resolve);
      };
      const stream = this.member.etcd.members[this.member.index]!.watch(take, this.metadata);
      const end = (how: () => void): void => {
        this.#closeWatch = undefined;
        stream.close();
        how();
      };
      this.#closeWatch = () => end(() => reject(failed("context canceled")));
      stream.send({ create: { watchId: 0, ...what } });
    });
  }
}

export function lockOf(member: ServedMember): Record<string, Method> {
  return {
    Lock: calling(member, LOCK_REQUEST, KEY_RESPONSE, async (caller, { name, leaseId }) => {
      const { header, key } = await caller.lock(name, leaseId, NO_BYTES);
      return { header: headerOf(header), key };
    }),
    Unlock: calling(member, KEY_REQUEST, HEADER_ONLY, async (caller, { key }) => {
      const { header } = await caller.kv<"delete">({ kind: "delete", key });
      return { header: headerOf(header) };
    }),
  };
}

export function electionOf(member: ServedMember): Record<string, Method> {
  const leaderOf = async (caller: Caller, name: Buffer): Promise<LeaderResponse | undefined> => {
    const { found, header } = await caller.first(keysOf(name));
    return found && { header: headerOf(header), kv: kvMessage(found) };
  };
  return {
    Campaign: calling(
      member,
      CAMPAIGN_REQUEST,
      CAMPAIGN_RESPONSE,
      async (caller, { name, leaseId, value }) => {
        const { header, ...kv } = await caller.lock(name, leaseId, value);
        const leader = { name, key: kv.key, revision: kv.createRevision, leaseId: kv.leaseId };
        return { header: headerOf(header), leader };
      },
    ),
    Proclaim: calling(member, PROCLAIM_REQUEST, HEADER_ONLY, async (caller, { leader, value }) => {
      if (leader === undefined) throw failed(NO_LEADER_KEY);
      const { key, revision, leaseId } = leader;
      const put: KvPut = { kind: "put", key, value, leaseId };
      const compare = [createdAt(key, revision)];
      const { kv, header } = await caller.kv<"txn">({ kind: "txn", compare, success: [put], failure: [] });
      if (!kv.succeeded) throw failed("election: not leader");
      return { header: headerOf(header) };
    }),
    Leader: calling(member, NAMED_REQUEST, LEADER_RESPONSE, async (caller, { name }) => {
      const found = await leaderOf(caller, name);
      if (found === undefined) throw failed("election: no leader");
      return found;
    }),
    Observe: streaming(NAMED_REQUEST, LEADER_RESPONSE, (out, metadata) => {
      const caller = new Caller(member, metadata);
      const observe = async (name: Buffer): Promise<never> => {
        for (let last = ""; ;) {
          const found = await leaderOf(caller, name);
          const what = found === undefined ? "" : `${bytesOf(found.kv.key)}@${found.kv.modRevision}`;
          if (found !== undefined && what !== last) out.answer(found);
          last = what;
          const startRevision = (found?.header.revision ?? member.header.revision ?? 0n) + 1n;
          const { key, end } = keysOf(name);
          await caller.watch({ key, end, startRevision, events: "ALL" }, () => true);
        }
      };
      return answering(out, caller, ({ name }) => observe(name));
    }),
    Resign: calling(member, RESIGN_REQUEST, HEADER_ONLY, async (caller, { leader }) => {
      if (leader === undefined) throw failed(NO_LEADER_KEY);
      const { header } = await caller.remove(leader.key, leader.revision);
      return { header: headerOf(header) };
    }),
  };
}

const NO_LEADER_KEY = '"leader" field must be provided';

/** A call with one request that may wait for long, until its client goes. */
const calling = <Request extends object, Answer extends object>(
  member: ServedMember,
  ...[request, response, run]: [
    Parameters<typeof streaming<Request, Answer>>[0],
    Parameters<typeof streaming<Request, Answer>>[1],
    (caller: Caller, request: Request) => Promise<Answer>,
  ]
): Method =>
  streaming(request, response, (out, metadata) => {
    const caller = new Caller(member, metadata);
    return answering(out, caller, async (asked) => {
      out.answer(await run(caller, asked));
      out.end();
    });
  });

function answering<Request, Answer>(
  out: Out<Answer>,
  caller: Caller,
  run: (request: Request) => Promise<void>,
): Duplex<Request> {
  let asked = false;
  const message = (request: Request): void => {
    if (asked) return;
    asked = true;
    run(request).catch((error: unknown) => {
      if (error instanceof RefusedError) out.end(error.refusal);
      else out.end({ refused: String(error), code: INTERNAL });
    });
  };
  // The client has sent all that it sends: a call with a request goes on.
  const close = (): void => {
    if (!asked) out.end(NO_REQUEST);
  };
  return { message, close, gone: () => caller.close() };
}
