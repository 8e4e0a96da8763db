// Members between the processes of a workload and etcd, which treat some requests in a way of their own.
import {
  isRefusal,
  type Refusal,
  type ServerStream,
  type SimServer,
  type UnaryReply,
  type UnaryRequest,
} from "../../../../src/testing/memory/protocol.js";
import type { World } from "./world.js";

/** As etcd's API answers while the quota is exceeded (api/v3rpc/rpctypes/error.go). */
export const NO_SPACE: Refusal = { refused: "etcdserver: mvcc: database space exceeded", code: 8 };

/** A refusal: the request is rejected. "ignore": it is not executed. "repeat": a proxy sends it twice, and passes the second answer. */
export type Treatment = "execute" | "ignore" | "lose answer" | "repeat" | Refusal;

/** A member that treats calls as a workload says. */
export class PickyServer implements SimServer {
  readonly host: string;
  treat: (request: UnaryRequest) => Treatment = () => "execute";
  /** A renewal has arrived. */
  onRenewal: () => void = () => {};
  /** It was asked for a watch stream. */
  hasWatches = false;

  constructor(private readonly server: SimServer) {
    this.host = server.host;
  }

  call(request: UnaryRequest, reply: (reply: UnaryReply) => void): void {
    const how = this.treat(request);
    if (typeof how === "object") return reply(how);
    if (how === "ignore") return;
    if (how === "repeat") this.server.call(request, () => {});
    this.server.call(request, how === "lose answer" ? () => {} : reply);
  }

  keepalive(...[out, metadata]: Parameters<SimServer["keepalive"]>): ServerStream<bigint> {
    const stream = this.server.keepalive(out, metadata);
    const send = (leaseId: bigint): void => {
      stream.send(leaseId);
      this.onRenewal();
    };
    return { send, close: () => stream.close() };
  }

  watch(...[out, metadata]: Parameters<SimServer["watch"]>): ReturnType<SimServer["watch"]> {
    this.hasWatches = true;
    return this.server.watch(out, metadata);
  }
}

export const picky = ({ etcd }: World): PickyServer[] =>
  etcd.members.map((server) => new PickyServer(server));

export const has = (request: UnaryRequest, kind: "put" | "delete"): boolean =>
  request.kind === "txns" && request.txns.some(({ success }) => success.some((each) => each.kind === kind));

/** `ErrGRPCNotSupportedForLearner` in api/v3rpc/rpctypes/error.go. */
const LEARNER: Refusal = { refused: "etcdserver: rpc not supported for learner", code: 14 };

/** A member that does not vote yet: it serves serializable reads only (`isRPCSupportedForLearner` in api/v3rpc/util.go). */
export class Learner implements SimServer {
  readonly host = "http://etcd-learner:2379";

  constructor(private readonly server: SimServer) {}

  call(request: UnaryRequest, reply: (reply: UnaryReply) => void): void {
    if (request.kind === "range" && request.range.serializable) this.server.call(request, reply);
    else reply(LEARNER);
  }

  keepalive(out: Parameters<SimServer["keepalive"]>[0]): ServerStream<bigint> {
    out(LEARNER);
    return { send: () => {}, close: () => {} };
  }

  watch(out: Parameters<SimServer["watch"]>[0]): ReturnType<SimServer["watch"]> {
    out(LEARNER);
    return { send: () => {}, close: () => {} };
  }
}

/** `etcd grpc-proxy`: it passes calls on, and answers a renewal of "no lease" with TTL -1 (proxy/grpcproxy/lease.go). */
export class EtcdProxy implements SimServer {
  readonly host = "http://etcd-proxy:2379";
  /** A key was put through it. */
  hasPut = false;

  constructor(private readonly server: SimServer) {}

  call(request: UnaryRequest, reply: (reply: UnaryReply) => void): void {
    this.hasPut ||= has(request, "put");
    this.server.call(request, reply);
  }

  keepalive(...[out, metadata]: Parameters<SimServer["keepalive"]>): ServerStream<bigint> {
    const ofProxy: typeof out = (answer) =>
      out(isRefusal(answer) || answer.leaseId !== 0n ? answer : { ...answer, ttlSeconds: -1 });
    return this.server.keepalive(ofProxy, metadata);
  }

  watch(...[out, metadata]: Parameters<SimServer["watch"]>): ReturnType<SimServer["watch"]> {
    return this.server.watch(out, metadata);
  }
}
