// Sticky locks in one queue with clients that aren't leasehold. What they held is judged by the rules of the lab: the times are those of
// the clock that all processes of a machine share, and the order of the queue is etcd's own record.
import { fork } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { judge } from "../../lab/checker/judge.js";
import { ByPlace, placesOf } from "../../lab/checker/places.js";
import type { Outcome, Run, Setting, Step } from "../../lab/runner/history.js";
import { now, readJournal } from "../../lab/runner/journal.js";
import { Observer } from "../../lab/runner/observer.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { keysAt } from "../../support/clients/keys-at.js";
import { type Command, goCommand, jetcdCommand, LockProgram } from "../../support/clients/lock-programs.js";
import { V3Lock } from "../../support/clients/v3lock.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { BUILD_MS } from "../../support/programs/go-program.js";
import type { HammerTask } from "../../support/programs/hammer-program.js";
import { owned } from "../../support/programs/owned.js";
import { Said } from "../../support/programs/said.js";

const TTL_SECONDS = 2;
const HAMMER = fileURLToPath(new URL("../../support/programs/hammer-program.ts", import.meta.url));
/** It may be the first one that needs the programs. */
const LONG = 2 * BUILD_MS;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

/** A foreign client's hold. */
interface Taken {
  /** Its create revision, or the key from which etcd's record tells it. */
  readonly token: bigint | string;
  release(): Promise<void>;
}
interface Asked {
  readonly held: Promise<Taken>;
}
/** It is killed while it holds, or at any moment after its call. */
type Victim = "holder" | "caller";
interface Client {
  ask(name: string): Promise<Asked>;
  kill(): Promise<void>;
}

const etcdctl = (): Client => {
  let last: EtcdctlLock | undefined;
  return {
    ask: (name) => {
      const lock = (last = new EtcdctlLock(etcd, name, { ttlSeconds: TTL_SECONDS }));
      const held = lock.held.then((token) => ({ token, release: () => lock.release() }));
      return Promise.resolve({ held });
    },
    kill: async () => last?.kill(),
  };
};

const v3lock = (): Client => ({
  ask: async (name) => {
    const lock = await V3Lock.ask(etcd.member, name);
    return { held: lock.held.then((token) => ({ token, release: () => lock.unlock() })) };
  },
  kill: () => Promise.reject(new Error("there is no process")),
});

const programOf = async (command: Command): Promise<Client> => {
  const program = await LockProgram.start(command, { addresses: etcd.endpoints, ttlSeconds: TTL_SECONDS });
  return {
    ask: (name) => {
      const held = program.lock(name).then(({ id, token }) => ({ token, release: () => program.unlock(id) }));
      return Promise.resolve({ held });
    },
    kill: () => program.kill(),
  };
};

/** The command of a program that another client is in; undefined, said why, where this machine can't run it. */
const commandOf = (make: () => Promise<Command>): Promise<Command | undefined> =>
  make().catch((error: Error) => console.log(`not run: ${error.message}`) as undefined);

describe("a sticky lock that one process after the other hammers, with foreign clients in the queue, some of each killed -9,", () => {
  const ROUNDS = 8;
  const TURNS = 3;
  const run: { history: Step[]; server: Run["server"]; setting: Setting } = {
    ...{ history: [], server: [] },
    setting: { ttlSeconds: TTL_SECONDS, locks: "mixed/", registers: "none/" },
  };
  const clients: string[] = [];
  let left: string[];
  let keptWhenKilled = 0;

  /** A process of ours. */
  class Hammer {
    readonly #child;
    readonly #said: Said;

    constructor(
      readonly p: string,
      private readonly journal: string,
    ) {
      const task: HammerTask = {
        p,
        hosts: etcd.endpoints,
        ttlSeconds: TTL_SECONDS,
        journal,
        burst: 10,
        pauseMs: 20,
      };
      const execArgv = ["--import", "tsx"];
      this.#child = owned(fork(HAMMER, [JSON.stringify(task)], { stdio: ["ignore", 2, 2, "ipc"], execArgv }));
      this.#said = new Said(this.#child);
    }

    async ready(): Promise<void> {
      await this.#said.first((word) => word === "ready");
    }
    tell(message: string): void {
      this.#child.send(message, () => {});
    }
    async keeps(name: string): Promise<void> {
      await this.#said.first((word) => word === `kept ${name}`);
    }
    async kill(): Promise<void> {
      this.#child.kill("SIGKILL");
      await this.ended();
      run.history.push({ t: now(), p: this.p, ...KILLED, target: this.p });
    }
    async ended(): Promise<void> {
      await this.#said.ended;
    }
    get history(): Step[] {
      return readJournal(this.journal);
    }
  }
  const KILLED = { k: "nemesis", fault: "kill", effect: "kills-worker", on: true } as const;

  /** The calls of a foreign client, one after the other, each process of which has a number. */
  class Contender {
    #client: Client | undefined;
    #incarnation = 0;
    #id = 0;

    constructor(
      readonly kind: string,
      private readonly start: () => Client | Promise<Client>,
    ) {}

    async turns(lock: string, kill: Victim | undefined): Promise<void> {
      for (let n = 0; n < TURNS; n++) {
        // So that the key is kept at some of the joins.
        await delay(n === 0 ? 0 : 10 + 40 * Math.random());
        await this.#turn(lock, n === 1 ? kill : undefined);
      }
    }

    async #turn(lock: string, kill: Victim | undefined): Promise<void> {
      const client = (this.#client ??= await this.start());
      const on = { p: `${this.kind}.${this.#incarnation}`, id: this.#id++, lock };
      const note = (step: object): void => void run.history.push({ t: now(), ...on, ...step } as Step);
      note({ k: "invoke", f: "acquire" });
      const { held } = await client.ask(lock);
      if (kill === "caller") {
        held.catch(() => {});
        await delay(50 * Math.random());
        return this.#kill(on.p);
      }
      const taken = await held;
      const { token } = taken;
      note({ k: "ok", f: "acquire", token, held: true });
      await delay(5 * Math.random());
      note({ k: "claim", token, held: true });
      if (kill === "holder") return this.#kill(on.p);
      note({ k: "invoke", f: "release" });
      await taken.release();
      note({ k: "ok", f: "release" });
    }

    async #kill(p: string): Promise<void> {
      run.history.push({ t: now(), p, ...KILLED, target: p });
      await this.#client?.kill();
      this.#client = undefined;
      this.#incarnation++;
    }

    async end(): Promise<void> {
      await this.#client?.kill().catch(() => {});
    }
  }

  beforeAll(async () => {
    const [go, jetcd] = [await commandOf(goCommand), await commandOf(jetcdCommand)];
    const contenders = [
      new Contender("etcdctl", etcdctl),
      new Contender("v3lock", v3lock),
      ...(go ? [new Contender("go", () => programOf(go)), new Contender("gopher", () => programOf(go))] : []),
      ...(jetcd ? [new Contender("jetcd", () => programOf(jetcd))] : []),
    ];
    clients.push(...contenders.map(({ kind }) => kind));
    const killable = contenders.filter(({ kind }) => kind !== "v3lock");
    const { revision } = await etcd.member.status();
    const observer = new Observer(etcd.members, "mixed/", revision + 1n);
    const folder = mkdtempSync(path.join(os.tmpdir(), "leasehold-mixed-"));
    const hammers: Hammer[] = [];
    const hammer = async (): Promise<Hammer> => {
      const p = `ours${hammers.length}`;
      const added = new Hammer(p, path.join(folder, p));
      hammers.push(added);
      await added.ready();
      return added;
    };
    let [first, second] = [await hammer(), await hammer()];
    for (let n = 0; n < ROUNDS; n++) {
      // A new name is sticky again.
      const name = `mixed/${n}`;
      first.tell(name);
      await first.keeps(name);
      if (n % 4 === 1) {
        await first.kill();
        const { length } = await observer.untilLiving(`${name}/`, (count) => count > 0, {
          timeoutMs: 10_000,
        });
        keptWhenKilled += length;
        first = await hammer();
      }
      const killed = killable[n % killable.length];
      const played = contenders.map((each) => {
        const kill = n < ROUNDS / 2 ? "holder" : "caller";
        return each.turns(name, each === killed ? kill : undefined);
      });
      second.tell(name);
      if (n % 4 === 3) {
        const { p } = second;
        await observer.until(() => observer.puts(`${name}/`).some(({ value }) => value.includes(p)), {
          timeoutMs: 30_000,
        });
        await second.kill();
        second = await hammer();
      }
      await Promise.all(played);
      [first, second] = [second, first];
    }
    for (const each of [first, second]) each.tell("close");
    await Promise.all([first.ended(), second.ended()]);
    left = await observer.untilLiving("mixed/", (count) => count === 0, {
      timeoutMs: 1000 * (TTL_SECONDS + 5),
    });
    await Promise.all(contenders.map((each) => each.end()));
    await observer.stop();
    run.server = observer.events;
    const puts = observer.events.filter(({ type }) => type === "PUT");
    /** The keys of `etcdctl` and v3lock are new each time. */
    const told = (step: Step): Step => {
      if (!("token" in step)) return step;
      const put = puts.find(({ key, create }) => key === String(step.token) || create === step.token);
      return { key: put?.key, ...step, token: put?.create ?? 0n } as Step;
    };
    run.history = run.history
      .map(told)
      .concat(hammers.flatMap(({ history }) => history))
      .sort((a, b) => Number(a.t - b.t));
    rmSync(folder, { recursive: true });
  }, LONG);

  const grants = (ours: boolean): Outcome[] =>
    run.history.flatMap((step) =>
      step.k === "ok" && step.f === "acquire" && step.p.startsWith("ours") === ours ? [step] : [],
    );

  test("is never held by two at a time", () => {
    expect(judge(run, ["I1", "I2", "I3"]).violations).toEqual({});
  });

  test("is held in the order of the create revisions", () => {
    expect(judge(run, ["I6", "I23"]).violations).toEqual({});
  });

  test("leaves no key behind, also of those that were killed", () => {
    expect(left).toEqual([]);
  });

  test("is taken locally, by every foreign client, and from keys that were kept", () => {
    const [ours, foreign] = [grants(true), grants(false)];
    const released = new Map(
      run.history.flatMap((step) =>
        step.k === "ok" && step.f === "release" ? [[`${step.p}#${step.id}`, step.t]] : [],
      ),
    );
    /** The last release of each of our keys. */
    const restsSince = new ByPlace(
      ours.map(({ lock, token, p, id }) => [{ lock, create: token! }, released.get(`${p}#${id}`)]),
    );
    const areForeign = new ByPlace(foreign.map(({ lock, token }) => [{ lock, create: token! }, true]));
    const keptUntilJoin = [...placesOf(run.server, run.setting).values()].flatMap((places) =>
      places.filter((place) => {
        const next = places.find(({ headSince }) => headSince !== undefined && headSince === place.deleted);
        const since = restsSince.get(place);
        return place.sticky && next && areForeign.has(next) && since !== undefined && since < next.seen;
      }),
    );

    expect(new Set(foreign.map(({ p }) => p.split(".")[0]))).toEqual(new Set(clients));
    expect(new Set(ours.flatMap(({ lock, turn = 1 }) => (turn > 1 ? [lock] : []))).size).toBe(ROUNDS);
    expect(keptUntilJoin.length).toBeGreaterThan(0);
    expect(keptWhenKilled).toBeGreaterThan(0);
  });
});

describe("Go's TryLock", () => {
  const sticky = async (
    name: string,
    work: (mutex: Mutex, go: LockProgram) => Promise<void>,
  ): Promise<void> => {
    const command = await commandOf(goCommand);
    if (!command) return;
    const cluster = connect({ hosts: etcd.endpoints });
    const go = await LockProgram.start(command, { addresses: etcd.endpoints, ttlSeconds: 60 });
    const mutex = new Mutex(cluster, name, { sticky: true });
    // The third one begins when the session is told of joins.
    for (let n = 0; n < 3; n++) await mutex.withLock(() => undefined);
    await work(mutex, go);
    await go.kill();
    await cluster.close();
  };
  const keys = (name: string, count: number) =>
    expect.poll(() => keysAt(etcd.member)(`${name}/`)).toHaveLength(count);

  test(
    "of a sticky lock that nobody holds is refused once, and makes the key leave for the next try",
    { timeout: LONG },
    () =>
      sticky("try/kept", async (mutex, go) => {
        await keys("try/kept", 1);

        expect(await go.tryLock("try/kept")).toBeUndefined();
        await keys("try/kept", 0);
        const got = await go.tryLock("try/kept");
        expect(got).toBeDefined();

        expect(await mutex.tryLock()).toBeUndefined();
        await go.unlock(got!.id);
        await mutex.withLock((lock) => expect(lock.fence).toBeGreaterThan(got!.token));
      }),
  );

  test("of one that is held is refused, and the key leaves with the release", { timeout: LONG }, () =>
    sticky("try/held", async (mutex, go) => {
      const lock = await mutex.lock();
      expect(lock.turn).toBeGreaterThan(1);

      expect(await go.tryLock("try/held")).toBeUndefined();
      await expect.poll(() => lock.wanted).toBe(false);
      expect(lock.held).toBe(true);
      await lock.release();

      await keys("try/held", 0);
      expect(await go.tryLock("try/held")).toBeDefined();
    }),
  );
});
