import type { Header, LeaseAnswer, WatchAnswer } from "../../../src/etcd/port.js";
import type { Scheduler } from "../kernel/kernel.js";
import type { Random } from "../kernel/random.js";
import { KeepaliveServerStream } from "./keepalive.js";
import type { Leases } from "./leases.js";
import type { Quirks } from "./quirks.js";
import { executeRange } from "./range.js";
import { EMPTY_KEY, isRefusal } from "./refusals.js";
import type { Store } from "./store.js";
import { executeTxns } from "./txn.js";
import type { Refusal, ServerStream, SimServer, UnaryReply, UnaryRequest, WatchCommand } from "./types.js";

import { WatchServerStream } from "./watch/watch-stream.js";
import type { Watches } from "./watch/watches.js";

/** What the members of a cluster have in common. */
export interface ClusterState {
  readonly store: Store;
  readonly leases: Leases;
  readonly quirks: Quirks;
  readonly clusterId: string;
  readonly watches: Watches;
  readonly scheduler: Scheduler;
  readonly random: Random;
}

/** The term in which the only member of a new cluster becomes the leader (measured, 3.4.23 to 3.7.3). */
const RAFT_TERM = 2n;

/** One member. It answers each call immediately: delays are the network's. */
export class SimEtcdServer implements SimServer {
  constructor(
    readonly host: string,
    private readonly memberId: string,
    private readonly state: ClusterState,
  ) {}

  call(request: UnaryRequest, reply: (reply: UnaryReply) => void): void {
    const answer = this.#execute(request);
    reply(isRefusal(answer) ? answer : { answer });
  }

  keepalive(out: (answer: LeaseAnswer | Refusal) => void): ServerStream<bigint> {
    return new KeepaliveServerStream({ leases: this.state.leases, header: () => this.header(), out });
  }

  watch(out: (answer: WatchAnswer | Refusal) => void): ServerStream<WatchCommand> {
    return new WatchServerStream({ ...this.state, header: (revision) => this.header(revision), out });
  }

  /** The header of an answer that is made now. */
  header(revision = this.state.store.revision): Header {
    return { clusterId: this.state.clusterId, memberId: this.memberId, revision, raftTerm: RAFT_TERM };
  }

  #execute(request: UnaryRequest): object {
    const { store, leases, quirks } = this.state;
    switch (request.kind) {
      case "txns": {
        const results = executeTxns(this.state, request.txns);
        if (isRefusal(results)) return results;
        const header = this.header();
        return results.map((result) => ({ header, ...result }));
      }
      case "range":
        if (request.range.key.length === 0) return EMPTY_KEY;
        return this.#withHeader(executeRange(store, request.range, { quirks, throughRaft: false }));
      case "compact":
        return this.#withHeader(store.compact(request.revision));
      case "revoke":
        return this.#withHeader(leases.revoke(request.leaseId));
      case "grant":
        return this.#granted(leases.grant(request.leaseId, request.ttlSeconds));
      case "timeToLive": {
        const { ttlSeconds, keys } = leases.timeToLive(request.leaseId);
        const shown = request.withoutKeys ? [] : keys;
        return { header: this.header(), leaseId: request.leaseId, ttlSeconds, keys: shown };
      }
    }
  }

  #withHeader(result: object | undefined): object {
    return isRefusal(result) ? result : { header: this.header(), ...result };
  }

  #granted(result: ReturnType<Leases["grant"]>): object {
    if (isRefusal(result)) return result;
    return { header: this.header(), leaseId: result.leaseId, ttlSeconds: result.ttlSeconds };
  }
}
