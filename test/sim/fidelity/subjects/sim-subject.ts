import type { Member } from "../../../../src/etcd/port.js";
import type { Quirks } from "../../../../src/testing/memory/quirks.js";
import { type SimVersion, type UnaryReply, isRefusal } from "../../../../src/testing/memory/protocol.js";
import { SimEtcd } from "../../../../src/testing/memory/etcd.js";
import { Kernel } from "../../kernel/kernel.js";
import { DirectWire } from "../../network/direct-wire.js";
import { failures } from "../../../../src/etcd/transport.js";
import { SimMember } from "../../../../src/testing/memory/network/member.js";
import type { Subject } from "./subject.js";

/** What changes a new simulated etcd: a fault that the test must find. */
export type Sabotage = (etcd: SimEtcd) => void;

export interface SimSubjectOptions {
  readonly version: SimVersion;
  readonly quirks?: Partial<Quirks>;
  readonly sabotage?: Sabotage;
}

/** A simulated etcd, a new one for each program. */
export class SimSubject implements Subject {
  #kernel!: Kernel;
  #etcd!: SimEtcd;
  #member!: Member;

  constructor(private readonly options: SimSubjectOptions) {}

  get member(): Member {
    return this.#member;
  }

  begin(): Promise<void> {
    const { version, quirks = {}, sabotage } = this.options;
    this.#kernel = new Kernel("fidelity");
    const random = this.#kernel.random.fork("etcd");
    this.#etcd = new SimEtcd({ scheduler: this.#kernel, random, version, quirks });
    sabotage?.(this.#etcd);
    const [server] = this.#etcd.members;
    this.#member = new SimMember(server!.host, new DirectWire(server!), { failures });
    return Promise.resolve();
  }

  async compact(revision: bigint): Promise<string> {
    let reply: UnaryReply | undefined;
    this.#etcd.members[0]!.call({ kind: "compact", revision }, (answer) => (reply = answer));
    await this.#kernel.run(() => reply !== undefined, 1000);
    return isRefusal(reply) ? `${reply.code}: ${reply.refused}` : "ok";
  }

  wait(settled: Promise<unknown>, limitMs: number): Promise<boolean> {
    let over = false;
    const end = (): void => {
      over = true;
    };
    settled.then(end, end);
    return this.#kernel.run(() => over, limitMs);
  }

  elapse(ms: number): Promise<void> {
    return this.#kernel.elapse(ms);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
