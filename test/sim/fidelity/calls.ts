// Random programs of users' calls, on memoryEtcd() in virtual time and on a real etcd in real time: each step must have the same
// outcome. A step is a call, an end, or a fault; what it leads to is compared once it has happened on both.
import { type Cluster, connect, Election, lockAll, Mutex, RwLock, Semaphore } from "../../../src/index.js";
import type { SimVersion } from "../../../src/memory/protocol.js";
import { Random } from "../../../src/memory/random.js";
import { type Losable, memoryEtcd, type TestEtcd } from "../../../src/testing/start.js";

const STEPS = 25;
const CLIENTS = 3;
const KINDS = ["mutex", "mutex", "read", "write", "permit", "all", "election"] as const;

/** Where a program runs. */
interface World {
  readonly etcd: TestEtcd;
  readonly prefix: string;
  /** Resolves when the step has had its effects, which `lines` gets. */
  readonly settle: (lines: readonly string[], step: number) => Promise<void>;
}

interface Call {
  readonly id: string;
  readonly abort: AbortController;
  hold: Taken | undefined;
  over: boolean;
}

type Kind = (typeof KINDS)[number];
type Taken = Losable & { readonly release: () => Promise<void> };

async function take(cluster: Cluster, kind: Kind, name: string, signal: AbortSignal): Promise<Taken> {
  switch (kind) {
    case "mutex":
      return new Mutex(cluster, `m/${name}`).lock({ signal });
    case "read":
      return new RwLock(cluster, `rw/${name}`).readLock({ signal });
    case "write":
      return new RwLock(cluster, `rw/${name}`).writeLock({ signal });
    case "permit":
      return new Semaphore(cluster, `s/${name}`, 2).acquire({ signal });
    case "all":
      return lockAll(cluster, ["m/a", "m/b"], { signal });
    case "election": {
      const leadership = await new Election(cluster, `e/${name}`).campaign(name, { signal });
      const { key, revision, signal: over } = leadership;
      return { key, revision, signal: over, release: () => leadership.resign() };
    }
  }
}

/** The outcome of each step, in one line. */
async function play(seed: string, world: World): Promise<string[]> {
  const random = new Random(seed);
  const { etcd, prefix, settle } = world;
  const options = { hosts: etcd.hosts, prefix, session: { ttlSeconds: 6 } };
  const clusters = Array.from({ length: CLIENTS }, () => connect(options));
  await Promise.all(clusters.map((cluster) => cluster.session()));
  const outcomes: string[] = [];
  const calls: Call[] = [];
  let lines: string[] = [];
  const call = (id: string, taken: (signal: AbortSignal) => Promise<Taken>): void => {
    const entry: Call = { id, abort: new AbortController(), hold: undefined, over: false };
    calls.push(entry);
    const end = (what: string): void => {
      entry.over = true;
      lines.push(`${id} ${what}`);
    };
    taken(entry.abort.signal).then(
      (hold) => {
        entry.hold = hold;
        lines.push(`${id} granted`);
        hold.signal.addEventListener("abort", () => end(`ended: ${reasonOf(hold.signal.reason)}`));
      },
      (error: unknown) => end(`rejected: ${reasonOf(error)}`),
    );
  };
  for (let step = 0; step < STEPS; step++) {
    lines = [];
    const held = calls.filter(({ hold, over }) => hold !== undefined && !over);
    const waiting = calls.filter(({ hold, over }) => hold === undefined && !over);
    const [draw, client, name, kind] = [
      random.next(),
      random.int(CLIENTS),
      random.pick(["a", "b"]),
      random.pick(KINDS),
    ];
    const cluster = clusters[client]!;
    let what = "nothing";
    if (draw < 0.4) {
      what = `${step} ${kind} ${name} of ${client}`;
      call(what, (signal) => take(cluster, kind, name, signal));
    } else if (draw < 0.65 && held.length > 0) {
      const { id, hold } = random.pick(held);
      what = `release ${id}`;
      void hold!.release();
    } else if (draw < 0.75 && waiting.length > 0) {
      const { id, abort } = random.pick(waiting);
      what = `abort ${id}`;
      abort.abort();
    } else if (draw < 0.85 && held.length > 0) {
      const { id, hold } = random.pick(held);
      what = `lose ${id}`;
      await etcd.lose(hold!);
    } else if (draw < 0.9) {
      what = `expire ${client}`;
      const session = await cluster.session();
      session.signal.addEventListener("abort", () => lines.push("the session has ended"));
      await etcd.expire(session);
    } else if (draw < 0.95) {
      what = "cut and heal";
      await etcd.cut(undefined, { how: "reset" });
      await etcd.heal();
    } else {
      what = "restart";
      await etcd.restart();
    }
    await settle(lines, step);
    outcomes.push([what, ...lines.sort()].join("; "));
  }
  for (const { abort } of calls) abort.abort();
  await Promise.all(clusters.map((each) => each.close({ drainMs: 0 })));
  outcomes.push(`left: ${(await etcd.keys(prefix)).join(" ")}`);
  return outcomes;
}

/** An error's code, and how the hold was lost. */
function reasonOf(error: unknown): string {
  const { code, loss, name } = error as { code?: unknown; loss?: string; name: string };
  return [typeof code === "string" ? code : name, loss ?? ""].join(" ").trim();
}

/** More than a client needs to learn of a loss, or to reach etcd again. */
const VIRTUAL_MS = 15_000;
const REAL_MS = 20_000;
const POLL_MS = 10;
const SURPLUS_MS = 30;

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

/** The first step whose outcomes differ; undefined if there is none. */
export async function compareCalls(
  seed: string,
  real: TestEtcd,
  members: 1 | 3,
): Promise<{ readonly step: number; readonly memory: string; readonly real: string } | undefined> {
  const version = /^\d+\.\d+/.exec(real.version ?? "")?.[0] as SimVersion | undefined;
  await using etcd = await memoryEtcd({ time: "virtual", members, version });
  const steps: string[][] = [];
  const expected = await play(seed, {
    etcd,
    prefix: "calls/",
    settle: async (lines) => {
      await etcd.advance(VIRTUAL_MS);
      steps.push([...lines].sort());
    },
  });
  const found = await play(seed, {
    etcd: real,
    prefix: "calls/",
    settle: async (lines, step) => {
      const isSame = (): boolean => [...lines].sort().join() === steps[step]!.join();
      for (const limit = performance.now() + REAL_MS; !isSame() && performance.now() < limit;)
        await pause(POLL_MS);
      await pause(SURPLUS_MS);
    },
  });
  const step = expected.findIndex((line, n) => line !== found[n]);
  return step === -1 ? undefined : { step, memory: expected[step]!, real: found[step]! };
}
