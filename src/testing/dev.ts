// The etcd inside this process behind real HTTP/2 and gRPC, for clients of any kind. What `testing/memory/` answers goes out by `grpc/`.
import { SimEtcd } from "./memory/etcd.js";
import { Random } from "./memory/random.js";
import { RealTime } from "./memory/time.js";
import { ServedMember } from "./grpc/member.js";
import { GrpcServer } from "./grpc/server.js";
import { servicesOf } from "./grpc/services.js";
import { type Inside, InsideBackdoor, InsideMember, KEPT_CHANGES, nameOf, type Way } from "./inside.js";
import { Link } from "./link.js";
import { type CheckedDev, checkDev, type CutMode, type DevEtcdOptions } from "./options.js";
import { RunningEtcd, type TestEtcd } from "./running-etcd.js";

/**
 * Starts an etcd for development inside this process, without a program or a download. It keeps nothing: its keys end with this
 * process. It listens on 127.0.0.1 only, without TLS, and speaks gRPC as etcd does, so that `connect()`, etcdctl and the clients of
 * other languages reach it. Resolves when every member listens.
 *
 * It has users, leases, watches and transactions, and no changes of the membership and no snapshots. With three members, their ports
 * follow one another. It does not keep the process alive, and its memory is bounded as that of `memoryEtcd()`.
 * @throws {TypeError | RangeError} on bad options, and with NODE_ENV=production unless `evenInProduction` is set.
 * @throws an `Error` with the code EADDRINUSE if a port is in use.
 */
export async function startDevEtcd(options?: DevEtcdOptions): Promise<TestEtcd> {
  const checked = checkDev(options);
  if (process.env["NODE_ENV"] === "production" && !checked.evenInProduction)
    throw new RangeError(
      "Expected evenInProduction to be true, as NODE_ENV is production: this etcd keeps nothing",
    );
  const world = new DevWorld(checked);
  try {
    await world.listen(checked.port);
  } catch (error) {
    await world.close();
    throw error;
  }
  return new RunningEtcd({ ...world, version: checked.version, remove: () => world.close() }, world.members, {
    backdoor: (_, over) => new InsideBackdoor(world, over),
    until: (is, limitMs, over) => world.time.until(is, limitMs, over),
  });
}

class DevWorld implements Inside {
  readonly time = new RealTime();
  readonly etcd: SimEtcd;
  readonly members: InsideMember[] = [];
  readonly history = { add: (): void => {} };
  readonly #ways: TcpWay[] = [];

  constructor({ members, version }: CheckedDev) {
    const random = new Random(String(Math.random()));
    const setting = { version, members, peerLatencyMs: 0, keptChanges: KEPT_CHANGES, race: 0 };
    this.etcd = new SimEtcd({ scheduler: this.time, random, ...setting });
  }

  async listen(port: number): Promise<void> {
    const hosts: string[] = [];
    const names = this.etcd.members.map((_, index) => nameOf(index));
    for (const index of names.keys()) {
      const server = new GrpcServer(servicesOf(new ServedMember(this.etcd, index, { names, hosts })));
      const way = await TcpWay.open(server, port === 0 ? 0 : port + index);
      hosts.push(way.host);
      this.#ways.push(way);
      this.members.push(new InsideMember(way, { inside: this, index }));
    }
  }

  async close(): Promise<void> {
    this.time.stop();
    await Promise.all(this.#ways.map((way) => way.close()));
  }
}

/** A port of 127.0.0.1, and the server behind it. */
class TcpWay implements Way {
  static async open(server: GrpcServer, port: number): Promise<TcpWay> {
    const link = await Link.open(() => server.address, port);
    await server.listen();
    return new TcpWay(link, server);
  }

  private constructor(
    private readonly link: Link,
    private readonly server: GrpcServer,
  ) {}

  get host(): string {
    return this.link.host;
  }

  start(): Promise<void> {
    return this.server.listen();
  }

  kill(): Promise<void> {
    this.link.release();
    return this.server.close();
  }

  pause(): void {
    this.link.hold();
  }

  resume(): void {
    this.link.release();
  }

  cut(how: CutMode): void {
    this.link.cut(how);
  }

  heal(): void {
    this.link.heal();
  }

  async close(): Promise<void> {
    await this.link.close();
    await this.server.close();
  }
}
