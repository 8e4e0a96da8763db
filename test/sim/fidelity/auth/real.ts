import { pause, systemClock } from "../../../../src/base/util/clock.js";
import { memberOf } from "../../../../src/etcd/transport.js";
import { checkConnect } from "../../../../src/base/options/connect.js";
import { request } from "../../../support/clients/etcd-http.js";
import { type EtcdCluster, startEtcd } from "../../../support/etcd/etcd.js";
import { fillQuota, spaceAlarm } from "../../../support/fixtures/space-alarm.js";
import type { Edit } from "./steps.js";
import type { AuthSubject, Connection } from "./subject.js";

/** What `fillQuota` writes. */
const FILL = "fill/";

const base64 = (text: string): string => Buffer.from(text, "latin1").toString("base64");

/** An etcd process with one member. */
export class Real implements AuthSubject {
  readonly #close: (() => void)[] = [];

  private constructor(private readonly etcd: EtcdCluster) {
    etcd.member.login({ username: "root", password: "root" });
  }

  static async start(args: readonly string[]): Promise<Real> {
    return new Real(await startEtcd({ args: ["--unsafe-no-fsync", "--bcrypt-cost=4", ...args] }));
  }

  get version(): string {
    return this.etcd.version;
  }

  connect(token: () => string | undefined): Connection {
    const auth = { username: "somebody", password: "else" };
    const options = checkConnect({ hosts: this.etcd.endpoints, transport: "http2", auth });
    const { endpoint } = this.etcd.member;
    const member = memberOf(endpoint, { token, pingMs: 6000 }, { options, clock: systemClock });
    this.#close.push(() => member.retire());
    const compact = async (revision: bigint): Promise<string> => {
      const body = { revision: revision.toString(), physical: true };
      const url = `${endpoint}/v3/kv/compaction`;
      const { status, text } = await request(url, { body, timeoutMs: 10_000, token: token() });
      return status === 200 ? "ok" : (JSON.parse(text) as { message: string }).message;
    };
    return { member, compact };
  }

  async edit(edit: Edit): Promise<string> {
    try {
      if (edit.edit === "alarm") await spaceAlarm(this.etcd.member, edit.on ? "ACTIVATE" : "DEACTIVATE");
      else await this.etcd.member.gateway(...requestOf(edit));
      return "ok";
    } catch (error) {
      return /etcdserver: [^"]*/.exec((error as Error).message)?.[0] ?? String(error);
    }
  }

  async wait(settled: Promise<unknown>, limitMs: number): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<boolean>((resolve) => (timer = setTimeout(() => resolve(false), limitMs)));
    const over = settled.then(
      () => true,
      () => true,
    );
    const isInTime = await Promise.race([over, late]);
    clearTimeout(timer);
    return isInTime;
  }

  elapse(ms: number): Promise<void> {
    return pause(systemClock, ms);
  }

  /** Whether the alarm NOSPACE is on. */
  async alarm(): Promise<boolean> {
    return (await this.#etcdctl("alarm", "list")).includes("NOSPACE");
  }

  /** Writes until the quota is used up. Returns the revision. */
  async fill(): Promise<bigint> {
    await fillQuota(this.etcd);
    return this.#revision();
  }

  /** Ends the alarm, as an administrator does. Returns the revision. */
  async makeSpace(): Promise<bigint> {
    await this.#etcdctl("del", "--prefix", FILL);
    const revision = await this.#revision();
    await this.#etcdctl("compact", "--physical", String(revision));
    await this.#etcdctl("defrag");
    await this.#etcdctl("alarm", "disarm");
    return revision;
  }

  async #revision(): Promise<bigint> {
    const { header } = (await this.etcd.member.gateway("/v3/kv/range", { key: base64("\0") })) as {
      header: { revision: string };
    };
    return BigInt(header.revision);
  }

  async #etcdctl(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.etcd.etcdctl(args);
    if (code !== 0) throw new Error(`etcdctl ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  async stop(): Promise<void> {
    for (const close of this.#close) close();
    await this.etcd.stop();
  }
}

function requestOf(edit: Exclude<Edit, { edit: "alarm" }>): [path: string, body: object] {
  switch (edit.edit) {
    case "enable":
    case "disable":
      return [`/v3/auth/${edit.edit}`, {}];
    case "add user":
      return ["/v3/auth/user/add", { name: edit.user, password: edit.password }];
    case "change password":
      return ["/v3/auth/user/changepw", { name: edit.user, password: edit.password }];
    case "delete user":
      return ["/v3/auth/user/delete", { name: edit.user }];
    case "grant role":
      return ["/v3/auth/user/grant", { user: edit.user, role: edit.role }];
    case "revoke role":
      return ["/v3/auth/user/revoke", { name: edit.user, role: edit.role }];
    case "add role":
      return ["/v3/auth/role/add", { name: edit.role }];
    case "delete role":
      return ["/v3/auth/role/delete", { role: edit.role }];
    case "grant permission":
    case "revoke permission":
      return requestOfPermission(edit);
  }
}

function requestOfPermission(edit: Extract<Edit, { key: string }>): [path: string, body: object] {
  const range = { key: base64(edit.key), range_end: base64(edit.end) };
  if (edit.edit === "revoke permission") return ["/v3/auth/role/revoke", { role: edit.role, ...range }];
  const perm = { permType: edit.type.toUpperCase(), ...range };
  return ["/v3/auth/role/grant", { name: edit.role, perm }];
}
