import type { Header, LeaseAnswer, WatchAnswer } from "../../../src/etcd/port.js";
import type { Scheduler } from "../kernel/kernel.js";
import type { Random } from "../kernel/random.js";
import { apply, type Replica, type TxnResults } from "./apply.js";
import type { Consensus } from "./consensus.js";
import { KeepaliveServerStream } from "./keepalive.js";
import type { MemberProcess } from "./raft/member-process.js";
import { EMPTY_KEY, isRefusal, NO_LEADER } from "./refusals.js";
import { isReadonly } from "./txn.js";
import { checkTxns } from "./txn-limits.js";
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
  readonly process: MemberProcess;
  readonly consensus: Consensus;
}

type Out<Answer> = (answer: Answer | Refusal) => void;
type Reply = (result: object) => void;

/** One member. The only one of a cluster answers each call immediately: delays are the network's. */
export class SimEtcdServer implements SimServer {
  /** Closes the streams that are open. */
  readonly #streams = new Set<() => void>();

  constructor(
    readonly host: string,
    private readonly state: MemberState,
  ) {}

  call(request: UnaryRequest, reply: (reply: UnaryReply) => void): void {
    this.state.process.deliver(() =>
      this.#execute(request, (answer) => reply(isRefusal(answer) ? answer : { answer })),
    );
  }

  keepalive(out: Out<LeaseAnswer>, metadata?: StreamMetadata): ServerStream<bigint> {
    const { consensus } = this.state;
    const renew: Consensus["renew"] = (leaseId, answer) => consensus.renew(leaseId, answer);
    const open = (send: Out<LeaseAnswer>): ServerStream<bigint> =>
      new KeepaliveServerStream({ renew, header: () => this.header(), out: send });
    return this.#open(open, out, metadata);
  }

  watch(out: Out<WatchAnswer>, metadata?: StreamMetadata): ServerStream<WatchCommand> {
    const open = (send: Out<WatchAnswer>): ServerStream<WatchCommand> =>
      new WatchServerStream({ ...this.state, header: (revision) => this.header(revision), out: send });
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

  #execute(request: UnaryRequest, reply: Reply): void {
    const { consensus } = this.state;
    switch (request.kind) {
      case "txns":
        return this.#executeTxns(request, reply);
      case "range":
        if (request.range.key.length === 0) return reply(EMPTY_KEY);
        return this.#read(request, request.range.serializable ?? false, reply);
      case "compact":
      case "revoke":
      case "grant":
        return consensus.propose(request, (result) => reply(this.#withHeader(result)));
      case "timeToLive":
        return consensus.timeToLive(request.leaseId, (found) => {
          if (isRefusal(found)) return reply(found);
          const keys = request.withoutKeys ? [] : found.keys;
          reply({ header: this.header(), leaseId: request.leaseId, ttlSeconds: found.ttlSeconds, keys });
        });
    }
  }

  /** Only a transaction without writes does not go through raft (Txn in etcdserver/v3_server.go). */
  #executeTxns(request: UnaryRequest & { kind: "txns" }, reply: Reply): void {
    const { txns } = request;
    const limits = checkTxns(txns);
    if (limits) return reply(limits);
    const [only] = txns;
    if (!only || txns.length > 1 || !isReadonly(only))
      return this.state.consensus.propose(request, (result) => reply(this.#withHeaders(result)));
    const ranges = [...only.success, ...only.failure];
    const isSerializable = ranges.every((range) => range.kind === "range" && range.serializable);
    this.#read(request, isSerializable, reply);
  }

  #read(request: UnaryRequest & { kind: "txns" | "range" }, isSerializable: boolean, reply: Reply): void {
    const answer = (): void => {
      const result = apply(this.state, request);
      reply(request.kind === "txns" ? this.#withHeaders(result) : this.#withHeader(result));
    };
    if (isSerializable) return answer();
    this.state.consensus.read((refusal) => (refusal ? reply(refusal) : answer()));
  }

  #withHeader(result: object): object {
    return isRefusal(result) ? result : { header: this.header(), ...result };
  }

  #withHeaders(result: object): object {
    if (isRefusal(result)) return result;
    const header = this.header();
    return (result as TxnResults).txns.map((each) => ({ header, ...each }));
  }
}
