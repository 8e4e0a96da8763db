// Where the programs of users' calls run: an etcd inside this process, in virtual time, and a real one.
import { setTimeout as pause } from "node:timers/promises";
import { type Cluster, connect } from "../../../../src/index.js";
import { prefixEnd } from "../../../../src/keys.js";
import { servicesOf } from "../../../../src/lock/session/cluster.js";
import { surroundingsOf } from "../../../../src/testing/admin.js";
import { Link } from "../../../../src/testing/link.js";
import type { CheckedMemory } from "../../../../src/testing/options.js";
import { startProcesses } from "../../../../src/testing/processes.js";
import { RunningEtcd } from "../../../../src/testing/running-etcd.js";
import { type MemoryEtcd, memoryEtcd, type TestEtcd } from "../../../../src/testing/start.js";
import type { Fault, World } from "./program.js";

const BLINK_MS = 500;
const PASSED_MS = 20;

async function strike(etcd: TestEtcd, { how, member }: Fault, passes: (ms: number) => Promise<unknown>) {
  if (how !== "blink") return etcd[how](member);
  await etcd.pause(member);
  await passes(BLINK_MS);
  await etcd.resume(member);
}

/** The end of the last program in memory: one after the other, or those on a real etcd would get no turn. */
let last: Promise<unknown> = Promise.resolve();

/** Runs `use` on an etcd inside this process. What `settle` has seen is in `seen`. */
export function inMemory<T>(...program: Parameters<typeof alone<T>>): Promise<T> {
  const run = last.then(() => alone(...program));
  last = run.catch(() => undefined);
  return run;
}

async function alone<T>(
  options: Pick<CheckedMemory, "version"> & { readonly members: 1 | 3 },
  seen: string[],
  use: (world: World) => Promise<T>,
): Promise<T> {
  await using etcd: MemoryEtcd = await memoryEtcd({ ...options, time: "virtual" });
  return await use({
    hosts: etcd.hosts,
    prefix: "program/",
    expire: (session) => etcd.expire(session),
    lose: (hold) => etcd.lose(hold),
    keys: (prefix) => etcd.keys(prefix),
    cut: (how, member) => etcd.cut(member, { how }),
    heal: () => etcd.heal(),
    fault: (fault) => strike(etcd, fault, (ms) => etcd.advance(ms)),
    rest: () => Promise.resolve(),
    async pass(call) {
      let isOver = false;
      const over = (): void => void (isOver = true);
      call.then(over, over);
      for (let ms = 0; !isOver; ms = PASSED_MS) await etcd.advance(ms);
      return call;
    },
    async settle(look, withinMs) {
      await etcd.advance(withinMs);
      const found = await look();
      seen.push(found);
      return found;
    },
  });
}

/** A step that all programs of a group take together: the last one to arrive acts. */
export class Gate {
  #arrived = 0;
  #act: () => Promise<void> = () => Promise.resolve();
  #open: (acted: Promise<void>) => void = () => {};
  #opened = this.#next();

  constructor(private members: number) {}

  pass(act: () => Promise<void>): Promise<void> {
    const opened = this.#opened;
    this.#act = act;
    this.#arrived++;
    this.#openIfAll();
    return opened;
  }

  leave(): void {
    this.members--;
    this.#openIfAll();
  }

  #openIfAll(): void {
    if (this.#arrived === 0 || this.#arrived < this.members) return;
    const open = this.#open;
    this.#arrived = 0;
    this.#opened = this.#next();
    open(this.#act());
  }

  #next(): Promise<void> {
    return new Promise((resolve) => (this.#open = resolve));
  }
}

/** What a step may take beyond its virtual time: a machine with other work, elections, restarts. */
const SPARE_MS = 15_000;
const FIRST_PAUSE_MS = 1;
const LAST_PAUSE_MS = 250;

/** A real etcd, for many programs side by side. */
export class RealEtcd {
  #count = 0;

  private constructor(
    readonly etcd: TestEtcd,
    readonly hosts: readonly string[],
    private readonly admin: Cluster,
  ) {}

  static async start(members: 1 | 3, binary: string | undefined): Promise<RealEtcd> {
    const options = { members, version: undefined, binary, image: undefined, signal: undefined };
    const fleet = await startProcesses({ ...options, timeoutMs: 60_000 });
    const links = await Promise.all(fleet.members.map(({ address }) => Link.open(() => address)));
    const hosts = fleet.members.map(({ address: { host, port } }) => `${host}:${port}`);
    return new RealEtcd(new RunningEtcd(fleet, links, surroundingsOf(fleet)), hosts, connect({ hosts }));
  }

  get version(): string {
    return this.etcd.version ?? "";
  }

  /** Runs `use` with keys of its own. `expected`: what `settle` waits for. */
  async run<T>(
    { expected, gate, cuts }: { readonly expected: readonly string[]; gate?: Gate; readonly cuts: boolean },
    use: (world: World) => Promise<T>,
  ): Promise<T> {
    const { etcd } = this;
    const links = cuts ? await Promise.all(this.hosts.map((host) => openLink(host))) : [];
    const chosen = (member: number | undefined) => (member === undefined ? links : [links[member]!]);
    let step = 0;
    try {
      return await use({
        hosts: cuts ? links.map(({ host }) => host) : this.hosts,
        prefix: `program-${++this.#count}/`,
        expire: (session) => etcd.expire(session),
        lose: (hold) => etcd.lose(hold),
        keys: (prefix) => this.#keys(prefix),
        cut: (how, member) => Promise.resolve(chosen(member).forEach((link) => link.cut(how))),
        heal: () => Promise.resolve(links.forEach((link) => link.heal())),
        fault: (fault) => gate!.pass(() => strike(etcd, fault, pause)),
        rest: (ms) => pause(ms),
        pass: (call) => call,
        settle: (look, withinMs) => settled(look, expected[step++], withinMs + SPARE_MS),
      });
    } finally {
      gate?.leave();
      await Promise.all(links.map((link) => link.close()));
    }
  }

  async stop(): Promise<void> {
    await this.admin.close({ drainMs: 0 });
    await this.etcd.stop();
  }

  async #keys(prefix: string): Promise<string[]> {
    const range = { key: prefix, end: prefixEnd(prefix), keysOnly: true };
    const { kvs } = await servicesOf(this.admin).client.range(range, { what: "read the keys" });
    return kvs.map(({ key }) => key.toString());
  }
}

function openLink(address: string): Promise<Link> {
  const [host, port] = address.split(":");
  return Link.open(() => ({ host: host!, port: Number(port) }));
}

async function settled(
  look: (expected?: string) => Promise<string>,
  expected: string | undefined,
  limitMs: number,
): Promise<string> {
  const limit = performance.now() + limitMs;
  for (let ms = FIRST_PAUSE_MS; ; ms = Math.min(LAST_PAUSE_MS, 2 * ms)) {
    const found = await look(expected);
    if (found === expected || performance.now() > limit) return found;
    await pause(ms);
  }
}
