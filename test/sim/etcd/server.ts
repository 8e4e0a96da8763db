import type { Header, LeaseAnswer, WatchAnswer, WatchRequest } from "../../../src/etcd/port.js";
import type { Scheduler } from "../kernel/kernel.js";
import type { Random } from "../kernel/random.js";
import { apply, type Replica, type TxnResults } from "./apply.js";
import type { AccessControl } from "./auth/access.js";
import type { AuthInfo } from "./auth/tokens.js";
import type { Consensus } from "./consensus.js";
import { KeepaliveServerStream } from "./keepalive.js";
import type { MemberProcess } from "./raft/member-process.js";
import { isRefusal, NO_LEADER } from "./refusals.js";
import { isReadonly } from "./txn.js";
import type { Refusal, ServerStream, SimServer, StreamMetadata } from "./types.js";
import type { UnaryReply, UnaryRequest, WatchCommand } from "./types.js";
import { WatchServerStream } from "./watch/watch-stream.js";
import type { Watches } from "./watch/watches.js";

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
}

type Out<Answer> = (answer: Answer | Refusal) => void;
type Reply = (result: object) => void;
type Asked = Exclude<UnaryRequest, { kind: "authenticate" }>;
type Read = Asked & { kind: "txns" | "range" };

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
      const info = access.admit(request);
      if (isRefusal(info)) return reply(info);
      this.#execute(request, info, (answer) => reply(isRefusal(answer) ? answer : { answer }));
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
      case "txns":
        return this.#executeTxns(request, info, reply);
      case "range":
        if (request.range.serializable) return reply(this.#answer(request, info));
        return this.#read(request, info, reply);
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

  /** Only a transaction without writes does not go through raft (Txn in etcdserver/v3_server.go). */
  #executeTxns(request: Asked & { kind: "txns" }, info: AuthInfo | undefined, reply: Reply): void {
    const { txns } = request;
    if (!isReadonly(txns))
      return this.state.consensus.propose(request, (result) => reply(this.#withHeaders(result)), info);
    const ranges = [...txns[0]!.success, ...txns[0]!.failure];
    if (ranges.every((range) => range.kind === "range" && range.serializable))
      return reply(this.#answer(request, info));
    this.#read(request, info, reply);
  }

  #read(request: Read, info: AuthInfo | undefined, reply: Reply): void {
    this.state.consensus.read((refusal) => reply(refusal ?? this.#answer(request, info)));
  }

  #answer(request: Read, info: AuthInfo | undefined): object {
    const run = (): object => apply(this.state, request);
    const result = info ? this.state.access.apply(request, info, run) : run();
    return request.kind === "txns" ? this.#withHeaders(result) : this.#withHeader(result);
  }

  #withHeader(result: object): object {
    return isRefusal(result) ? result : { header: this.header(), ...result };
  }

  #withHeaders(result: object): object {
    if (isRefusal(result)) return result;
    const header = this.header();
    return (result as TxnResults).txns.map(({ succeeded, ranges }) => ({ header, succeeded, ranges }));
  }
}
