import type { GrpcProxy, RuleOptions } from "../../support/proxies/grpc-proxy.js";
import { givesBack, isBatch, takesPlace } from "../../support/clients/request-shape.js";
import type { FaultKind, Ground } from "../runner/ground.js";
import type { Refusal } from "../runner/history.js";
import type { Random } from "../runner/random.js";
import { pastFailOver } from "../runner/schedule.js";
import { OVERLOADED, PROPOSALS } from "./overload.js";

/** A ground with a proxy that knows single gRPC calls in front of each member. */
export interface Called extends Ground {
  readonly calls: readonly GrpcProxy[];
}

export const TXN = "/etcdserverpb.KV/Txn";
const GRANT = "/etcdserverpb.Lease/LeaseGrant";
const RANGE = "/etcdserverpb.KV/Range";

interface Rules {
  readonly path: string | readonly string[];
  readonly act: RuleOptions["act"];
  readonly which?: (request: Buffer) => boolean;
  /** The share of these calls that is hit; default 0.3. */
  readonly share?: number;
  /**
   * For how many milliseconds a call is delayed, or held back at most; calls are held back until the fault is healed by
   * default.
   */
  readonly ms?: (random: Random, ttlMs: number) => number;
  readonly refuses?: Refusal;
  readonly status?: RuleOptions["status"];
}

const aMoment = (random: Random) => random.between(5, 60);
/**
 * Longer than the client waits for one attempt, which is a quarter of a TTL: its retry has succeeded by then, and it
 * may hold again.
 */
const pastRetry = (random: Random, ttlMs: number) => random.between(0.3 * ttlMs, 0.6 * ttlMs);

export const onCalls = (
  name: string,
  { path, act, which = () => true, share = 0.3, ms, refuses, status = OVERLOADED }: Rules,
): FaultKind<Called> => ({
  name,
  effect: "hinders",
  sparesLeases: path !== GRANT,
  ...(refuses && { refuses, lasts: pastFailOver }),
  inflict({ ground, random, ttlMs }) {
    const when = (request: Buffer) => which(request) && random.chance(share);
    const rest = { act, when, status, ...(ms && { ms: ms(random, ttlMs) }) };
    const made = ground.calls.flatMap((proxy) =>
      [path].flat().map((each) => ({ proxy, rule: proxy.rule({ path: each, ...rest }) })),
    );
    const heal = () => {
      for (const { proxy, rule } of made) {
        proxy.remove(rule);
        // What was held back arrives now, long after its sender gave up.
        rule.release();
      }
    };
    return { target: "all", heal };
  },
});

/**
 * Renewals are answered by a leader of an older term that renews nothing (etcd#15247): a client that trusts it holds on
 * longer than etcd does.
 */
const strayLeader: FaultKind<Called> = {
  name: "stray-leader",
  effect: "hinders",
  lasts: (_, ttlMs) => 1.6 * ttlMs,
  async inflict({ ground, ttlMs }) {
    const { raftTerm } = await (await ground.leader()).status();
    const stray = { term: raftTerm - 1n, ttlSeconds: ttlMs / 1000 };
    const tell = (what: typeof stray | undefined) => ground.calls.forEach((proxy) => proxy.stray(what));
    tell(stray);
    return { target: "all", heal: () => tell(undefined) };
  },
};

export const callFaults: readonly FaultKind<Called>[] = [
  strayLeader,
  onCalls("lose-join-answers", { path: TXN, act: "drop-answer", which: takesPlace }),
  onCalls("cut-join-answers", { path: TXN, act: "cut-answer", which: takesPlace, share: 0.1 }),
  onCalls("goaway-joins", { path: TXN, act: "goaway", which: takesPlace, share: 0.1 }),
  onCalls("hold-joins", { path: TXN, act: "hold", which: takesPlace, share: 0.2 }),
  onCalls("hold-batches", {
    ...{ path: TXN, act: "hold", share: 0.5, ms: pastRetry },
    which: (request) => isBatch(request) && takesPlace(request),
  }),
  onCalls("lose-releases", { path: TXN, act: "drop-request", which: givesBack }),
  onCalls("lose-release-answers", { path: TXN, act: "drop-answer", which: givesBack }),
  onCalls("goaway-releases", { path: TXN, act: "goaway", which: givesBack, share: 0.2 }),
  onCalls("hold-releases", { path: TXN, act: "hold", which: givesBack, share: 0.2, ms: pastRetry }),
  onCalls("reorder", { path: TXN, act: "delay", share: 0.5, ms: aMoment }),
  onCalls("delay-reads", { path: RANGE, act: "delay", share: 0.5, ms: aMoment }),
  onCalls("lose-grant-answers", { path: GRANT, act: "drop-answer", share: 0.5 }),
  onCalls("too-many-requests", { path: PROPOSALS, act: "refuse", refuses: "member" }),
  // gRPC turns this answer to an executed call into a refusal: RESOURCE_EXHAUSTED.
  onCalls("calm-joins", { path: TXN, act: "calm", which: takesPlace, refuses: "member" }),
  // etcd executes the request that crosses its quota, but still rejects it.
  onCalls("crossed-quota", {
    ...{ path: TXN, act: "overrule", which: takesPlace, refuses: "cluster" },
    status: { code: 8, details: "etcdserver: mvcc: database space exceeded" },
  }),
  onCalls("calm-releases", { path: TXN, act: "calm", which: givesBack, refuses: "member" }),
];
