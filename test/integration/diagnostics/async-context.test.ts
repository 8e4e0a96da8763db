// In which async context each callback and event of the public API runs.
import { AsyncLocalStorage, createHook } from "node:async_hooks";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import {
  ClusterLockManager,
  connect,
  Election,
  lead,
  lockAll,
  Mutex,
  once,
  RwLock,
  Semaphore,
  Session,
  watchQueue,
  type Cluster,
  type Hold,
  type Leadership,
} from "../../../src/index.js";
import {
  acquireChannel,
  callChannel,
  CHANNELS,
  electionChannel,
  holdEndChannel,
  holdLongChannel,
  memberChannel,
  rejoinChannel,
  renewedChannel,
  sessionChannel,
} from "../../../src/base/telemetry/index.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

/** The context of a request, as a web server sets it. */
const request = new AsyncLocalStorage<string>();
const OWN = "none";
const here = (): string => request.getStore() ?? OWN;

const CHANNEL_OF_LONG_LIVED = [sessionChannel, renewedChannel, memberChannel, holdLongChannel] as const;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd.stop());

/** In which contexts something ran, by what it was. */
class Seen {
  readonly of = new Map<string, Set<string>>();

  note(what: string): void {
    this.of.set(what, (this.of.get(what) ?? new Set()).add(here()));
  }

  async untilHas(...whats: string[]): Promise<void> {
    await expect.poll(() => whats.filter((what) => !this.of.has(what))).toEqual([]);
  }

  contexts(what: string): string[] {
    return [...(this.of.get(what) ?? [])];
  }
}

interface Subscribable {
  readonly name: string | symbol;
  subscribe(listener: (message: never) => void): void;
  unsubscribe(listener: (message: never) => void): void;
}

function subscribe(cluster: Cluster, seen: Seen, channels: readonly unknown[]): void {
  for (const channel of channels as readonly Subscribable[]) {
    const listener = (message: {
      hosts: readonly string[];
      reason?: string;
      state?: string;
      to?: string;
    }) => {
      const what = message.reason ?? message.state ?? message.to;
      if (message.hosts === cluster.hosts)
        seen.note(`${String(channel.name)}${what === undefined ? "" : ` ${what}`}`);
    };
    channel.subscribe(listener);
    onTestFinished(() => channel.unsubscribe(listener));
  }
}

const ended = (hold: Hold | Session): Promise<unknown> =>
  new Promise((resolve) => hold.signal.addEventListener("abort", resolve, { once: true }));

/** Revokes the lease, and renews: so the session learns of it. */
async function lose(session: Session): Promise<void> {
  const over = ended(session);
  await revoke(etcd.member, session.leaseId);
  await over;
}

describe.each(["http2", "etcd3"] as const)("with the transport %s", (transport) => {
  test("what a session, its locks and its members report runs in no caller's context", async () => {
    const proxy = await startTcpProxy(() => ({ port: etcd.member.clientPort }));
    onTestFinished(() => proxy.stop());
    const seen = new Seen();
    const log = (level: string) => (line: string) => {
      if (/session|failed|using/i.test(line)) seen.note(`log ${level}`);
    };
    await using cluster = connect({
      hosts: proxy.endpoint,
      transport,
      session: { ttlSeconds: 2 },
      log: { error: log("error"), warn: log("warn"), info: log("info"), debug: log("debug") },
    });
    subscribe(cluster, seen, [...CHANNEL_OF_LONG_LIVED, holdEndChannel]);
    const name = `${transport}/reports`;

    const { session, holds } = await request.run("the first", async () => {
      const session = await cluster.session();
      const holds = {
        mutex: await new Mutex(cluster, name, { warnHoldMs: 1 }).lock(),
        reader: await new RwLock(cluster, `${name}-rw`).readLock(),
        permit: await new Semaphore(cluster, `${name}-permit`, 2).acquire(),
        all: await lockAll(cluster, [`${name}-1`, `${name}-2`]),
        leadership: await new Election(cluster, `${name}-lead`).campaign("me"),
        // The last one, since it's lost by itself.
        maximum: await new Mutex(cluster, `${name}-max`, { maxHoldMs: 200, maxHoldGraceMs: 1 }).lock(),
      };
      for (const [kind, hold] of Object.entries(holds))
        hold.signal.addEventListener("abort", () => seen.note(`signal of ${kind}`));
      session.signal.addEventListener("abort", () => seen.note("signal of session"));
      session.addEventListener("statechange", ({ state }) => seen.note(`statechange ${state}`));
      return { session, holds };
    });
    await seen.untilHas("signal of maximum", CHANNELS.holdLong, CHANNELS.renewed);
    proxy.reset();
    await seen.untilHas(`${CHANNELS.member} down`, "log warn");
    await request.run("another", () => new Mutex(cluster, `${name}-other`).withLock(() => undefined));
    await request.run("the revoker", () => lose(session));

    expect(holds.mutex.held).toBe(false);
    await seen.untilHas("statechange lost", "log error", `${CHANNELS.session} lost`);
    const all = [...seen.of.keys()].map((what) => [what, ...seen.contexts(what)]);
    const released = `${CHANNELS.holdEnd} released`;
    expect(all.filter(([what, ...contexts]) => what !== released && String(contexts) !== OWN)).toEqual([]);
    expect(seen.contexts(released)).toEqual(["another"]);
    expect([...seen.of.keys()]).toEqual(
      expect.arrayContaining([
        ...Object.keys(holds).map((kind) => `signal of ${kind}`),
        ...["signal of session", "statechange lost", "log warn", "log error"],
        ...[`${CHANNELS.session} live`, `${CHANNELS.session} lost`, `${CHANNELS.holdEnd} revoked`],
        ...[`${CHANNELS.holdEnd} max_hold`, `${CHANNELS.holdLong}`, `${CHANNELS.renewed}`],
        ...[`${CHANNELS.member} up`, `${CHANNELS.member} down`],
      ]),
    );
  });

  test.each(["its session", "its time"])(
    "a listener of a lock that has lost %s is outside every withLock: it waits, even if reentrant",
    async (what) => {
      await using cluster = connect({ hosts: etcd.endpoints, transport, session: { ttlSeconds: 2 } });
      await using first = await Session.open(cluster, { ttlSeconds: 10 });
      const name = `${transport}/${what}`;
      const a = new Mutex(first, `${name}/a`);
      const order: string[] = [];
      let after: Promise<unknown> | undefined;

      await a.withLock(async () => {
        const b = new Mutex(cluster, `${name}/b`, what === "its time" ? { maxHoldMs: 100 } : {});
        const { signal } = await b.lock();
        const told = new Promise<void>((resolve) => {
          signal.addEventListener("abort", () => {
            after = a.withLock(() => void order.push("the listener's"), { reentrant: true });
            resolve();
          });
        });
        if (what === "its session") await lose(await cluster.session());
        await told;
        await expect.poll(() => placesOf(etcd.member, `${name}/a`)).toHaveLength(2);
        order.push("the work's");
      });

      await after;
      expect(order).toEqual(["the work's", "the listener's"]);
    },
  );

  test("what a call runs keeps the context of the call", async () => {
    await using cluster = connect({ hosts: etcd.endpoints, transport, session: { ttlSeconds: 10 } });
    await using other = connect({ hosts: etcd.endpoints, transport, session: { ttlSeconds: 10 } });
    const seen = new Seen();
    subscribe(cluster, seen, [acquireChannel.start, acquireChannel.asyncEnd, rejoinChannel]);
    const name = `${transport}/calls`;
    const inside = (what: string) => () => seen.note(what);
    const manager = new ClusterLockManager(cluster, { prefix: `${name}-web` });
    await request.run("the first", () => cluster.session());
    const blocking = await new Mutex(other, `${name}-busy`).lock();
    const blockingAll = await lockAll(other, [`${name}-x`, `${name}-y`]);

    const calls = Promise.all(
      ["one", "two"].map((who) =>
        request.run(who, async () => {
          await Promise.all([
            new Mutex(cluster, `${name}-busy`).withLock(inside(`withLock of ${who}`)),
            new RwLock(cluster, `${name}-rw`).withWriteLock(inside(`withWriteLock of ${who}`)),
            new RwLock(cluster, `${name}-rw`).withReadLock(inside(`withReadLock of ${who}`)),
            new Semaphore(cluster, `${name}-permit`, 1).withPermit(inside(`withPermit of ${who}`)),
            lockAll(cluster, [`${name}-y`, `${name}-x`]).then(async (all) => {
              seen.note(`lockAll of ${who}`);
              await all.release();
            }),
            once(cluster, `${name}-once`, who === "one" ? 1 : 2, inside(`once of ${who}`)),
            manager.request("web", inside(`web lock of ${who}`)),
          ]);
        }),
      ),
    );
    await Promise.all([blocking.release(), blockingAll.release()]);
    await calls;

    for (const [what, contexts] of seen.of)
      if (what.includes(" of ")) expect([what, ...contexts]).toEqual([what, what.split(" ").at(-1)]);
    expect([...seen.of.keys()].filter((what) => what.includes(" of ")).length).toBe(14);
    for (const channel of [acquireChannel.start, acquireChannel.asyncEnd])
      expect(seen.contexts(String(channel.name)).sort()).toEqual(["one", "two"]);
  });

  test("lead, its callbacks and the iterators keep the context of their call", async () => {
    await using cluster = connect({ hosts: etcd.endpoints, transport, session: { ttlSeconds: 2 } });
    const seen = new Seen();
    const stop = new AbortController();
    const name = `${transport}/lead`;
    await request.run("the first", () => cluster.session());

    const observed = request.run("observer", async () => {
      for await (const leader of new Election(cluster, name).observe({ signal: stop.signal }))
        seen.note(`observe ${leader !== undefined}`);
    });
    const watched = request.run("watcher", async () => {
      for await (const { total } of watchQueue(cluster, name, { signal: stop.signal }))
        seen.note(`watchQueue ${total.holders}`);
    });
    const over = Promise.allSettled([observed, watched]);
    let terms = 0;
    const work = async ({ signal }: Leadership) => {
      seen.note("work");
      await seen.untilHas("onLeader", "observe true", "watchQueue 1");
      if (++terms === 2) return stop.abort();
      const lost = new Promise((resolve) => signal.addEventListener("abort", resolve));
      for (const { leaseId } of cluster.snapshot().sessions) await revoke(etcd.member, leaseId);
      return lost;
    };
    const options = { signal: stop.signal, onLeader: () => seen.note("onLeader"), ttlSeconds: 2 };
    const led = request.run("leader", () => lead(cluster, name, work, options));
    await Promise.all([led, over]);

    expect(seen.contexts("work")).toEqual(["leader"]);
    expect(seen.contexts("onLeader")).toEqual(["leader"]);
    expect(seen.contexts("observe true")).toEqual(["observer"]);
    expect(seen.contexts("watchQueue 1")).toEqual(["watcher"]);
  });

  test("healthy keeps the context of lead, while it leads and before the next campaign", async () => {
    await using cluster = connect({ hosts: etcd.endpoints, transport, session: { ttlSeconds: 10 } });
    const seen = new Seen();
    const stop = new AbortController();
    let checks = 0;
    let terms = 0;
    const healthy = () => {
      seen.note(terms === 1 && checks > 1 ? "healthy before the campaign" : "healthy in the term");
      // What a check changes stays its own.
      request.enterWith("the check");
      return ++checks !== 2;
    };
    const work = async ({ signal }: Leadership) => {
      if (++terms === 2) return stop.abort();
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
    };
    const options = { signal: stop.signal, healthy, everyMs: 10, withinMs: 5000, ttlSeconds: 10 };
    await request.run("leader", () => lead(cluster, `${transport}/healthy`, work, options));

    expect(checks).toBeGreaterThan(2);
    for (const when of ["in the term", "before the campaign"])
      expect([when, ...seen.contexts(`healthy ${when}`)]).toEqual([when, "leader"]);
  });

  test("onRetry keeps the context of lead", async () => {
    await using cluster = connect({ hosts: etcd.endpoints, transport, session: { ttlSeconds: 10 } });
    const seen = new Seen();
    const stop = new AbortController();
    const name = `${transport}/retry`;
    const leadership = await new Election(cluster, name).campaign("the leader");
    const onRetry = () => {
      seen.note("onRetry");
      stop.abort();
    };

    const options = { signal: stop.signal, onRetry, ttlSeconds: 2 };
    const led = request.run("a candidate", () => lead(cluster, name, () => undefined, options));
    await expect.poll(() => cluster.snapshot().waits).toHaveLength(1);
    await revoke(etcd.member, cluster.snapshot().waits[0]!.leaseId);
    await led;
    await leadership.resign();

    expect(seen.contexts("onRetry")).toEqual(["a candidate"]);
  });

  test("requests to etcd are published in the context of the call that sends them, or in none", async () => {
    await using cluster = connect({ hosts: etcd.endpoints, transport, session: { ttlSeconds: 10 } });
    const seen = new Map<string, Set<string>>();
    const note = ({ hosts, what }: { hosts: readonly string[]; what: string }) => {
      if (hosts === cluster.hosts) seen.set(what, (seen.get(what) ?? new Set()).add(here()));
    };
    callChannel.start.subscribe(note);
    callChannel.asyncEnd.subscribe(note);
    onTestFinished(() => {
      callChannel.start.unsubscribe(note);
      callChannel.asyncEnd.unsubscribe(note);
    });
    const names = ["one", "two", "three"];

    await Promise.all(
      names.map((who) =>
        request.run(who, () => new Mutex(cluster, `${transport}/published`).withLock(() => undefined)),
      ),
    );
    await request.run("alone", () => new Mutex(cluster, `${transport}/alone`).withLock(() => undefined));

    expect([...(seen.get("grant a lease") ?? [])]).toEqual([OWN]);
    expect([...(seen.get(`join the queue of "${transport}/published"`) ?? [])].sort()).toEqual(
      [OWN, "one"].sort(),
    );
    expect([...(seen.get(`join the queue of "${transport}/alone"`) ?? [])]).toEqual(["alone"]);
    expect([...(seen.get(`leave the queue of "${transport}/alone"`) ?? [])]).toEqual(["alone"]);
  });
});

test("the events of an election run in the context of the campaign, and the end of a term in none", async () => {
  await using cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: 10 } });
  const seen = new Seen();
  subscribe(cluster, seen, [electionChannel]);

  await request.run("the candidate", async () => {
    const leadership = await new Election(cluster, "events").campaign("me");
    await leadership.resign();
  });

  const contexts = (state: string) => seen.contexts(`${CHANNELS.election} ${state}`);
  expect([contexts("campaigning"), contexts("elected"), contexts("resigned")]).toEqual([
    ["the candidate"],
    ["the candidate"],
    [OWN],
  ]);
});

test("a hold whose signal was read leaves no async resource of leasehold", async () => {
  const made = new Set<number>();
  const left = new Set<number>();
  const init = (id: number, type: string): void => {
    if (!type.startsWith("leasehold")) return;
    made.add(id);
    left.add(id);
  };
  const hook = createHook({ init, destroy: (id) => void left.delete(id) }).enable();
  onTestFinished(() => void hook.disable());
  await using cluster = connect({ hosts: etcd.endpoints });
  const mutex = new Mutex(cluster, "resources");

  let aborts = 0;
  for (let n = 0; n < 300; n++) {
    const lock = await mutex.lock();
    lock.signal.addEventListener("abort", () => aborts++);
    await lock.release();
  }

  expect(aborts).toBe(300);
  expect(made.size).toBeGreaterThanOrEqual(300);
  await expect.poll(() => left.size).toBe(0);
});
