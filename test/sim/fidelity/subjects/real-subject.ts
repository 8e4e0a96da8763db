import { pause, systemClock } from "../../../../src/base/util/clock.js";
import type { Member } from "../../../../src/etcd/port.js";
import { memberOf } from "../../../../src/etcd/transport.js";
import { checkConnect } from "../../../../src/base/options/connect.js";
import { request } from "../../../support/clients/etcd-http.js";
import { type EtcdCluster, startEtcd } from "../../../support/etcd/etcd.js";
import type { Subject } from "./subject.js";

const ALL = { key: "AA==", range_end: "AA==" };

/** An etcd process with one member. Programs run on it one after another. */
export class RealSubject implements Subject {
  private constructor(
    private readonly etcd: EtcdCluster,
    readonly member: Member,
  ) {}

  /** `version`: such as "3.6"; default: that of the tests. */
  static async start(version?: string): Promise<RealSubject> {
    const etcd = await startEtcd({ ...(version && { version }), args: ["--unsafe-no-fsync"] });
    const options = checkConnect({ hosts: etcd.endpoints, transport: "http2" });
    const setting = { token: () => undefined, pingMs: 6000 };
    return new RealSubject(etcd, memberOf(etcd.member.endpoint, setting, { options, clock: systemClock }));
  }

  get version(): string {
    return this.etcd.version;
  }

  async begin(): Promise<void> {
    const { member } = this.etcd;
    const { leases = [] } = (await member.gateway("/v3/lease/leases", {})) as { leases?: { ID: string }[] };
    for (const { ID } of leases) await member.gateway("/v3/lease/revoke", { ID });
    await member.gateway("/v3/kv/deleterange", ALL);
  }

  async compact(revision: bigint): Promise<string> {
    const body = { revision: revision.toString(), physical: true };
    const url = `${this.etcd.member.endpoint}/v3/kv/compaction`;
    const { status, text } = await request(url, { body, timeoutMs: 10_000 });
    if (status === 200) return "ok";
    const { code, message } = JSON.parse(text) as { code: number; message: string };
    return `${code}: ${message}`;
  }

  async wait(settled: Promise<unknown>, limitMs: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(false), limitMs);
    });
    const inTime = settled.then(
      () => true,
      () => true,
    );
    const result = await Promise.race([inTime, late]);
    clearTimeout(timer);
    return result;
  }

  elapse(ms: number): Promise<void> {
    return pause(systemClock, ms);
  }

  async close(): Promise<void> {
    this.member.retire();
    await this.etcd.stop();
  }
}
