import { createCluster as fromSources, type ConnectOptions } from "../../../src/lock/session/connect.js";
import type { Cluster } from "../../../src/lock/session/cluster.js";
import type { GrpcMember } from "../../../src/etcd/http2/member.js";
import type { MemberSetting, Member } from "../../../src/etcd/port.js";
import type { SocketHandlers } from "../../../src/etcd/http2/socket.js";
import type { SimServer } from "../../../src/testing/memory/protocol.js";
import type { Behavior } from "../http2/behavior.js";
import { ServerConnection } from "../http2/server-connection.js";
import { SimSocket, type Accept } from "../http2/socket.js";
import type { Scheduler } from "../../../src/testing/memory/event-queue.js";
import type { Random } from "../../../src/testing/memory/random.js";
import type { ConnectionSetting } from "../../../src/testing/memory/network/connection.js";
import { Link, type LinkProfile } from "../../../src/testing/memory/network/link.js";
import { LinkWire } from "../../../src/testing/memory/network/wire.js";
import { failures } from "../../../src/etcd/transport.js";
import { SimMember } from "../../../src/testing/memory/network/member.js";
import { NodeClock, type NodeClockOptions } from "./node-clock.js";
import { simThread, type ThreadSetting } from "./sim-thread.js";

export interface SimNodeOptions {
  readonly name: string;
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly servers: readonly SimServer[];
  readonly profile?: LinkProfile;
  readonly clock?: Partial<Pick<NodeClockOptions, "drift" | "wallOffsetMs" | "linux">>;
  /** Of `connect`. The hosts are those of the servers, and the default owner of sessions is the node's name. */
  readonly options?: NodeConnect | undefined;
  /** Of another build. Default: that of the sources. */
  readonly createCluster?: typeof fromSources;
  /** Of that build: what a worker thread runs. Without it, no leases are renewed there. */
  readonly renewal?: Pick<ThreadSetting, "EtcdClient" | "LeaseRenewer"> | undefined;
  /** Default: the simulation takes the place of the transport. */
  readonly transport?: TransportOptions | undefined;
}

/** The client's own HTTP/2 and gRPC, over sockets that are simulated. */
export interface TransportOptions {
  readonly GrpcMember: typeof GrpcMember;
  /** One address stands for all members: each connection goes to the next one. */
  readonly oneAddress: boolean;
  readonly behavior: Behavior;
  /** A process violates a protocol. */
  readonly violated: (node: string, error: Error) => void;
}

type GrpcContext = ConstructorParameters<typeof GrpcMember>[2];
type NodeConnect = Partial<Omit<ConnectOptions, "hosts">>;

/** As `connect` makes them, for one thread. */
export type NewSimMember = (
  host: string,
  setting: MemberSetting,
  context: Pick<GrpcContext, "options">,
) => Member;

/** The defaults of `connect`. */
const CONNECTION: ConnectionSetting = { pingIntervalMs: 6000, pingTimeoutMs: 2000, connectTimeoutMs: 2000 };

const ONE_ADDRESS = "http://etcd:2379";

/** A simulated process: a real cluster with a clock of its own, and a link to each member. */
export class SimNode {
  /** To each member, in the order of the servers. */
  readonly links: readonly Link[];
  #clock: NodeClock;
  #cluster: Cluster;
  #wires: LinkWire[] = [];
  #sockets: SimSocket[] = [];
  #connections = 0;
  #starts = 0;

  #connectOptions: NodeConnect | undefined;

  constructor(private readonly options: SimNodeOptions) {
    this.#connectOptions = options.options;
    const { servers, scheduler, profile, name } = options;
    const random = options.random.fork(name);
    this.links = servers.map(({ host }) => new Link(scheduler, random.fork(`link to ${host}`), profile));
    this.#clock = this.#newClock();
    this.#cluster = this.#newCluster();
  }

  get name(): string {
    return this.options.name;
  }

  /** Of the present process: another one after a restart. */
  get cluster(): Cluster {
    return this.#cluster;
  }

  get clock(): NodeClock {
    return this.#clock;
  }

  pause(): void {
    this.#clock.pause();
  }

  block(): void {
    this.#clock.block();
  }

  unblock(): void {
    this.#clock.unblock();
  }

  suspend(): void {
    this.#clock.suspend();
  }

  resume(): void {
    this.#clock.resume();
  }

  /** Nothing of the process runs any more. What it has sent may still be executed. */
  kill(): void {
    this.#clock.kill();
    for (const wire of this.#wires) wire.abandon();
    for (const socket of this.#sockets) socket.abandon();
    this.#wires = [];
    this.#sockets = [];
  }

  /** A connection of the process beside its cluster. */
  connection(token?: () => string): Member {
    return this.#newMember(this.options.servers[0]!.host, CONNECTION, { token });
  }

  /** A new process in the place of one that was killed. */
  restart(options = this.#connectOptions): void {
    this.#connectOptions = options;
    if (!this.#clock.killed) this.kill();
    this.#starts++;
    this.#clock = this.#newClock();
    this.#cluster = this.#newCluster();
  }

  #newClock(): NodeClock {
    const { scheduler, random, name, clock } = this.options;
    return new NodeClock({ scheduler, random: random.fork(`${name} start ${this.#starts}`), ...clock });
  }

  #newCluster(): Cluster {
    const { servers, name, transport, renewal, scheduler, createCluster = fromSources } = this.options;
    const options = this.#connectOptions;
    const session = { owner: name, ...options?.session };
    const hosts = transport?.oneAddress ? [ONE_ADDRESS] : servers.map(({ host }) => host);
    const given = { ...options, session, hosts };
    const clock = this.#clock;
    const newMember = this.#membersOf(clock);
    const startThread =
      renewal && simThread({ ...renewal, given, clock, scheduler, membersOf: (of) => this.#membersOf(of) });
    return createCluster(given, { clock, newMember, ...(startThread && { startThread }) });
  }

  /** The connections of a thread of the process. */
  #membersOf(clock: NodeClock): NewSimMember {
    return (host, { pingMs, token }, { options }) => {
      const { pingTimeoutMs, connectTimeoutMs, auth } = options;
      const setting = { pingIntervalMs: pingMs, pingTimeoutMs, connectTimeoutMs };
      return (
        this.#overTransport(host, { pingMs, token }, { options, clock }) ??
        this.#newMember(host, setting, { token: auth && token, clock })
      );
    };
  }

  #overTransport(
    host: string,
    setting: MemberSetting,
    { options, clock }: Pick<GrpcContext, "options"> & { readonly clock: NodeClock },
  ): GrpcMember | undefined {
    const { transport } = this.options;
    if (transport === undefined) return undefined;
    const open = (_: unknown, handlers: SocketHandlers): SimSocket => {
      this.#sockets = this.#sockets.filter(({ destroyed }) => !destroyed);
      const socket = this.#openSocket(host, { transport, clock }, handlers);
      this.#sockets.push(socket);
      return socket;
    };
    return new transport.GrpcMember(host, setting, { options, clock, open });
  }

  #openSocket(
    host: string,
    { transport, clock }: { readonly transport: TransportOptions; readonly clock: NodeClock },
    handlers: SocketHandlers,
  ): SimSocket {
    const { behavior, violated } = transport;
    const { server, link } = transport.oneAddress ? this.#nextMember() : this.#at(host);
    const { scheduler, name } = this.options;
    const random = this.options.random.fork(`${name} connection ${++this.#connections}`);
    const accept: Accept = (client) =>
      new ServerConnection(client, {
        ...{ server, scheduler, random, behavior },
        violated: (error) => violated(name, error),
      });
    return new SimSocket({ link, clock, accept }, handlers);
  }

  #nextMember(): { readonly server: SimServer; readonly link: Link } {
    const place = this.#connections % this.links.length;
    return { server: this.options.servers[place]!, link: this.links[place]! };
  }

  #at(host: string): { readonly server: SimServer; readonly link: Link } {
    const index = this.options.servers.findIndex((server) => server.host === host);
    const [server, link] = [this.options.servers[index], this.links[index]];
    if (server === undefined || link === undefined) throw new Error(`no member at ${host}`);
    return { server, link };
  }

  #newMember(
    host: string,
    setting: ConnectionSetting,
    {
      token,
      clock = this.#clock,
    }: { readonly token?: (() => string | undefined) | undefined; readonly clock?: NodeClock },
  ): Member {
    const { server, link } = this.#at(host);
    const wire = new LinkWire(link, server, { clock, setting });
    this.#wires.push(wire);
    return new SimMember(host, wire, { failures, clock, token });
  }
}
