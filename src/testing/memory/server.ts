import type { Header, LeaseAnswer, TxnAnswer, WatchAnswer, WatchRequest } from "../../etcd/port.js";
import type { Scheduler } from "./event-queue.js";
import type { AccessControl } from "./access.js";
import { type KvAnswer, type TxnResult, isSerializable, oneTxn, onlyReads } from "./kv.js";
import type { Leases } from "./leases.js";
import {
  type MemberRequest,
  NO_LEADER,
  type Refusal,
  type ServerStream,
  type SimServer,
  type StreamMetadata,
  type UnaryReply,
  type UnaryRequest,
  type WatchCommand,
  isRefusal,
} from "./protocol.js";
import type { MemberProcess } from "./raft/member-process.js";
import type { Random } from "./random.js";
import { type Replica, apply } from "./txn.js";
import type { AuthInfo } from "./users.js";
import { WatchServerStream } from "./watch-stream.js";
import type { Watches } from "./watches.js";

/** What one member has. */
export interface MemberState extends Replica {
  readonly clusterId: string;
  readonly memberId: string;
  readonly watches: Watches;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly access: AccessControl;
  readonly process: MemberProcess;
  readonly consensus: Consensus;
  /** See `WatchStreamOptions`. */
  readonly race: number | undefined;
}

type Out<Answer> = (answer: Answer | Refusal) => void;
type Reply = (result: object) => void;
type Asked = Exclude<MemberRequest, { kind: "authenticate" }>;

/** One member. The only one of a cluster answers each call immediately: delays are the network's. */
export class SimEtcdServer implements SimServer {
  /** How many calls have arrived. */
  calls = 0;
  /** Closes the streams that are open. */
  readonly #streams = new Set<() => void>();

  constructor(
    readonly host: string,
    private readonly state: MemberState,
  ) {}

  call(request: UnaryRequest, reply: (reply: UnaryReply) => void): void {
    const { process, access, consensus } = this.state;
    this.calls++;
    process.deliver(() => {
      if (request.kind === "authenticate")
        return consensus.read((refusal) => (refusal ? reply(refusal) : access.authenticate(request, reply)));
      const asked = asAnyClient(request);
      const info = access.admit(asked);
      if (isRefusal(info)) return reply(info);
      this.#execute(asked, info, (result) =>
        reply(isRefusal(result) ? result : { answer: asPort(request, result) }),
      );
    });
  }

  keepalive(out: Out<LeaseAnswer>, metadata?: StreamMetadata): ServerStream<bigint> {
    const { consensus, access } = this.state;
    const renew: Consensus["renew"] = (leaseId, answer) => consensus.renew(leaseId, answer);
    const check = (leaseId: bigint): Refusal | undefined => access.checkRenewal(metadata?.token, leaseId);
    const open = (send: Out<LeaseAnswer>): ServerStream<bigint> =>
      new KeepaliveServerStream({ renew, header: () => this.header(), out: send, check });
    return this.#open(open, out, metadata);
  }

  watch(out: Out<WatchAnswer>, metadata?: StreamMetadata): ServerStream<WatchCommand> {
    const { access } = this.state;
    const check = (request: WatchRequest): string | undefined => access.checkWatch(metadata?.token, request);
    const header = (revision?: bigint): Header => this.header(revision);
    const open = (send: Out<WatchAnswer>): ServerStream<WatchCommand> =>
      new WatchServerStream({ ...this.state, header, out: send, check });
    return this.#open(open, out, metadata);
  }

  /** The header of an answer that is made now. */
  header(revision = this.state.store.revision): Header {
    const { clusterId, memberId, consensus } = this.state;
    return { clusterId, memberId, revision, raftTerm: consensus.term };
  }

  /** The process is gone, and its streams with it. */
  killed(): void {
    for (const close of [...this.#streams]) close();
  }

  /** A member keeps its tokens in memory. */
  restarted(): void {
    this.state.access.restarted();
  }

  /** A member without a leader refuses a stream that requires one, and ends it later (api/v3rpc/interceptor.go). */
  #open<Command, Answer>(
    open: (out: Out<Answer>) => ServerStream<Command>,
    out: Out<Answer>,
    metadata: StreamMetadata = {},
  ): ServerStream<Command> {
    const { process, consensus } = this.state;
    let stream: ServerStream<Command> | undefined;
    let forget = (): void => {};
    const close = (): void => {
      this.#streams.delete(close);
      forget();
      stream?.close();
      stream = undefined;
    };
    const send = (answer: Answer | Refusal): void => {
      if (isRefusal(answer as object)) close();
      out(answer);
    };
    this.#streams.add(close);
    process.deliver(() => {
      if (!this.#streams.has(close)) return;
      if (metadata.requiresLeader && !consensus.hasLeader) return send(NO_LEADER);
      if (metadata.requiresLeader) forget = consensus.whenLeaderless(() => send(NO_LEADER));
      stream = open(send);
    });
    return { send: (command) => process.deliver(() => stream?.send(command)), close };
  }

  #execute(request: Asked, info: AuthInfo | undefined, reply: Reply): void {
    const { consensus, access } = this.state;
    switch (request.kind) {
      case "kv": {
        // Only writes go through raft (Txn in etcdserver/v3_server.go).
        if (!onlyReads(request.request))
          return consensus.propose(request, (result) => reply(this.#withHeader(result)), info);
        const answer = (): object => this.#read(request, info);
        if (isSerializable(request.request)) return reply(answer());
        return consensus.read((refusal) => reply(refusal ?? answer()));
      }
      case "administer":
        if (request.isLocal) return reply(this.#withHeader(request.run(access.auth)));
        return consensus.read((refusal) => reply(refusal ?? this.#withHeader(request.run(access.auth))));
      case "compact":
      case "revoke":
      case "grant":
        return consensus.propose(request, (result) => reply(this.#withHeader(result)), info);
      case "timeToLive":
        return consensus.timeToLive(request.leaseId, (found) => {
          const denied = info && access.decide(request, info);
          if (denied || isRefusal(found)) return reply(denied ?? found);
          const keys = request.withoutKeys ? [] : found.keys;
          reply({ header: this.header(), leaseId: request.leaseId, ttlSeconds: found.ttlSeconds, keys });
        });
    }
  }

  #read(request: Asked & { kind: "kv" }, info: AuthInfo | undefined): object {
    const run = (): object => apply(this.state, request);
    return this.#withHeader(info ? this.state.access.apply(request, info, run) : run());
  }

  #withHeader(result: object): object {
    return isRefusal(result) ? result : { header: this.header(), ...result };
  }
}

/** What the port asks of keys is a `kv` for a member. */
function asAnyClient(request: Exclude<UnaryRequest, { kind: "authenticate" }>): Asked {
  const { token } = request;
  if (request.kind === "txns") return { kind: "kv", request: oneTxn(request.txns), token };
  if (request.kind === "range") return { kind: "kv", request: { kind: "range", ...request.range }, token };
  return request;
}

/** The answer to it, as the port has it. */
function asPort(request: UnaryRequest, answer: object): object {
  if (request.kind !== "txns" && request.kind !== "range") return answer;
  const { header, kv } = answer as { readonly header: Header; readonly kv: KvAnswer };
  if (request.kind === "range") return { header, ...kv };
  const results = request.txns.length === 1 ? [kv] : (kv as TxnResult).answers;
  return (results as readonly TxnResult[]).map(({ succeeded, answers }): TxnAnswer => {
    const ranges = answers.map((each) => (each.kind === "range" ? each : undefined));
    return { header, succeeded, ranges };
  });
}

export interface KeepaliveOptions {
  readonly renew: Consensus["renew"];
  readonly header: () => Header;
  readonly out: (answer: LeaseAnswer | Refusal) => void;
  /** Why the renewal is rejected, which ends the stream. */
  readonly check: (leaseId: bigint) => Refusal | undefined;
}

/**
 * A keepalive stream (api/v3rpc/lease.go). It handles one renewal after the other: that of an expired lease delays those
 * after it until the lease is revoked.
 */
export class KeepaliveServerStream implements ServerStream<bigint> {
  readonly #options: KeepaliveOptions;
  readonly #waiting: bigint[] = [];
  #busy = false;
  #closed = false;

  constructor(options: KeepaliveOptions) {
    this.#options = options;
  }

  send(leaseId: bigint): void {
    if (this.#closed) return;
    this.#waiting.push(leaseId);
    this.#next();
  }

  close(): void {
    this.#closed = true;
    this.#waiting.length = 0;
  }

  #next(): void {
    if (this.#busy) return;
    const leaseId = this.#waiting.shift();
    if (leaseId === undefined) return;
    this.#busy = true;
    // The header is made before the renewal, so that its revision is not later than the renewal.
    const header = this.#options.header();
    const refusal = this.#options.check(leaseId);
    if (refusal) {
      this.close();
      return this.#options.out(refusal);
    }
    this.#options.renew(leaseId, (ttlSeconds) => {
      this.#busy = false;
      if (this.#closed) return;
      if (typeof ttlSeconds === "number") this.#options.out({ header, leaseId, ttlSeconds });
      else this.#options.out(ttlSeconds);
      this.#next();
    });
  }
}

/** The remaining time of a lease in whole seconds, -1 if there is none, and its keys. */
export type TimeToLive = ReturnType<Leases["timeToLive"]>;

/** How the requests to one member reach the state of the cluster. */
export interface Consensus {
  readonly term: bigint;
  readonly hasLeader: boolean;
  /**
   * Calls `done` with the result that this member's state has when the request is applied there, or with a refusal. `info`: the
   * user of the request; undefined: no permission is checked.
   */
  propose(request: MemberRequest, done: (result: object) => void, info?: AuthInfo): void;
  /** Calls `then` when this member has applied all that was committed before, or with the refusal. */
  read(then: (refusal?: Refusal) => void): void;
  /** Calls `answer` with the granted TTL, with 0 if there is no such lease, or with a refusal. */
  renew(leaseId: bigint, answer: (ttlSeconds: number | Refusal) => void): void;
  timeToLive(leaseId: bigint, answer: (found: TimeToLive | Refusal) => void): void;
  /** `end` is called if the member has had no leader for long. Returns what forgets it. */
  whenLeaderless(end: () => void): () => void;
}

/** The term in which the only member of a new cluster becomes the leader (measured, 3.4.23 to 3.7.3). */
const RAFT_TERM = 2n;

/** The only member of a cluster executes everything immediately: delays are the network's. */
export function solo(
  leases: Leases,
  apply: (request: MemberRequest, info: AuthInfo | undefined) => object,
): Consensus {
  return {
    term: RAFT_TERM,
    hasLeader: true,
    propose: (request, done, info) => done(apply(request, info)),
    read: (then) => then(),
    // The only member is always the primary.
    renew: (leaseId, answer) => leases.renew(leaseId, (ttlSeconds) => answer(ttlSeconds ?? 0)),
    timeToLive: (leaseId, answer) => answer(leases.timeToLive(leaseId)),
    whenLeaderless: () => () => {},
  };
}
