import { type EtcdCluster, startEtcd } from "./etcd.js";

/** A user whose role covers `jobs/` and nothing else. */
export const WORKER = { username: "worker", password: "worker-secret" };
export const ROOT = { username: "root", password: "root-secret" };

const AS_ROOT = `--user=${ROOT.username}:${ROOT.password}`;

/** An etcd that wants a password of everybody. */
export class UserEtcd {
  constructor(readonly etcd: EtcdCluster) {}

  get endpoints(): readonly string[] {
    return this.etcd.endpoints;
  }

  /** etcdctl as root. @returns what it prints */
  async root(...args: string[]): Promise<string> {
    const { code, stdout, stderr } = await this.etcd.etcdctl([AS_ROOT, ...args]);
    if (code !== 0) throw new Error(`etcdctl ${args.join(" ")}: ${stderr}`);
    return stdout;
  }

  /** A role that covers `prefix`, and a user who has it. */
  async addUser(user: typeof WORKER, prefix: string, permission = "readwrite"): Promise<void> {
    await this.root("role", "add", user.username);
    await this.root("role", "grant-permission", user.username, "--prefix=true", permission, prefix);
    await this.root("user", "add", `${user.username}:${user.password}`);
    await this.root("user", "grant-role", user.username, user.username);
  }

  async keysUnder(prefix: string): Promise<string[]> {
    return (await this.root("get", "--prefix", "--keys-only", prefix))
      .split("\n")
      .filter((line) => line !== "");
  }

  /** The places of a queue. */
  keysIn(name: string): Promise<string[]> {
    return this.keysUnder(`${name}/`);
  }

  /** How many Authenticate calls etcd has answered, those of etcdctl included: it makes one each time. */
  authentications(): Promise<number> {
    return this.#counted("handled", ["Authenticate"]);
  }

  /** How many streams clients have opened. */
  streams(): Promise<number> {
    return this.#counted("started", ["Watch", "LeaseKeepAlive"]);
  }

  async #counted(what: "handled" | "started", methods: readonly string[]): Promise<number> {
    const metrics = await this.etcd.member.metrics();
    const series = [...metrics].filter(
      ([key]) =>
        key.startsWith(`grpc_server_${what}_total`) && methods.some((each) => key.includes(`"${each}"`)),
    );
    return series.reduce((sum, [, count]) => sum + count, 0);
  }

  /** No token that was given out before is valid afterwards. */
  async dropTokens(): Promise<void> {
    await this.root("auth", "disable");
    await this.root("auth", "enable");
  }

  async stop(): Promise<void> {
    await this.etcd.stop();
  }
}

/** With `ROOT` and `WORKER`. Passwords are checked fast, so that etcdctl may be asked often. */
export async function startWithUsers(options: Parameters<typeof startEtcd>[0] = {}): Promise<UserEtcd> {
  const args = [...(options.args ?? []), "--bcrypt-cost=4"];
  const server = new UserEtcd(await startEtcd({ ...options, args }));
  await server.root("user", "add", `${ROOT.username}:${ROOT.password}`);
  await server.root("user", "grant-role", ROOT.username, "root");
  await server.addUser(WORKER, "jobs/");
  await server.root("auth", "enable");
  return server;
}
