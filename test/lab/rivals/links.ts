import { startGrpcProxy, type GrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { startTcpProxy, type TcpProxy } from "../../support/proxies/tcp-proxy.js";

type Mode = Parameters<TcpProxy["mode"]>[0];
type Way = Parameters<TcpProxy["drop"]>[0];
/** The address of a server: read for each new connection, because the server may have changed by then. */
export type Target = () => { port: number };

/** One client's own links to its servers, through our proxies. */
export class Links {
  readonly #tcp: readonly TcpProxy[];
  /** In the order of the servers, if single gRPC calls must be recognized. */
  readonly calls: readonly GrpcProxy[];

  static async open(targets: readonly Target[], { calls = false } = {}): Promise<Links> {
    const grpc = calls ? await Promise.all(targets.map((target) => startGrpcProxy(target))) : [];
    const behind = calls ? grpc : targets;
    const tcp = behind.map((next) => startTcpProxy(typeof next === "function" ? next : { port: next.port }));
    return new Links(await Promise.all(tcp), grpc);
  }

  private constructor(tcp: readonly TcpProxy[], calls: readonly GrpcProxy[]) {
    this.#tcp = tcp;
    this.calls = calls;
  }

  get addresses(): string[] {
    return this.#tcp.map(({ port }) => `127.0.0.1:${port}`);
  }
  /** The total number of accepted connections. */
  get accepted(): number {
    return this.#tcp.reduce((sum, proxy) => sum + proxy.accepted, 0);
  }

  async mode(mode: Mode): Promise<void> {
    await Promise.all(this.#tcp.map((proxy) => proxy.mode(mode)));
  }
  drop(way: Way): void {
    for (const proxy of this.#tcp) proxy.drop(way);
  }
  reset(): void {
    for (const proxy of this.#tcp) proxy.reset();
  }
  async stop(): Promise<void> {
    await Promise.all([...this.#tcp, ...this.calls].map((proxy) => proxy.stop()));
  }
}
