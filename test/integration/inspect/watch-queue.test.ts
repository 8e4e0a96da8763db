// What watchQueue() yields, judged by etcd's own history on an undisturbed connection.
import { describe, expect, test } from "vitest";
import { connect, inspect, list, Mutex, type QueueState, Semaphore, watchQueue } from "../../../src/index.js";
import { observe as watchRaw, type Observer } from "../../support/clients/observer.js";
import { putKeys } from "../../support/clients/many-keys.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
const PATIENCE = { timeout: 20_000 };

const keysOf = ({ holders, waiters }: QueueState) => [...holders, ...waiters].map(({ key }) => key);
const textOf = (state: QueueState) => `${state.revision}: ${keysOf(state).join(" ")}`;

async function nextOf(states: AsyncIterableIterator<QueueState>): Promise<QueueState> {
  const result: IteratorResult<QueueState, undefined> = await states.next();
  if (result.done) throw new Error("the iteration has ended");
  return result.value;
}

/** The queue after each revision that changed it, oldest key first. */
function statesIn({ seen }: Observer): string[] {
  const living = new Set<string>();
  const states: string[] = [];
  seen.forEach(({ type, key, mod }, n) => {
    if (type === "DELETE") living.delete(key);
    else living.add(key);
    if (seen[n + 1]?.mod !== mod) states.push(`${mod}: ${[...living].join(" ")}`);
  });
  return states;
}

/** Changes the queue: after each round it has one key more or less. */
async function change(name: string, rounds: number, after: (n: number) => unknown = () => undefined) {
  const living: string[] = [];
  for (let n = 0; n < rounds; n++) {
    const key = `${name}/${(n + 256).toString(16)}`;
    if (n % 5 < 3) {
      await putKeys(two.etcd.member, [key]);
      living.push(key);
    } else
      await two.etcd.member.gateway("/v3/kv/deleterange", { key: toBase64(living.splice(n % 2, 1)[0]!) });
    await after(n);
  }
}

const toBase64 = (text: string) => Buffer.from(text).toString("base64");

describe("watchQueue()", () => {
  test("yields the present state, then every change, each with its revision and without TTLs", async () => {
    const name = "watch/all";
    const mutex = new Mutex(two.holder, name);
    const states = watchQueue(two.cluster, name);
    expect(await nextOf(states)).toMatchObject({ kind: "unknown", holders: [] });

    const lock = await mutex.lock();
    const first = await nextOf(states);
    const waiting = new Mutex(two.session, name).lock();
    const second = await nextOf(states);
    await lock.release();
    const third = await nextOf(states);
    await (await waiting).release();
    const last = await nextOf(states);

    expect(first).toMatchObject({ kind: "mutex", holders: [{ owner: "the holder", revision: lock.fence }] });
    expect(first.holders[0]?.ttlRemainingMs).toBeUndefined();
    expect(first.revision).toBe(lock.fence);
    expect(
      [first, second, third, last].map(({ holders, waiters }) => [holders.length, waiters.length]),
    ).toEqual([
      [1, 0],
      [1, 1],
      [1, 0],
      [0, 0],
    ]);
    await states.return?.();
  });

  test("says of a semaphore who holds now, though no key of theirs has changed", async () => {
    const name = "watch/semaphore";
    const permits = [];
    for (let n = 0; n < 2; n++) permits.push(await new Semaphore(two.holder, name, 2).acquire());
    const waiting = new Semaphore(two.session, name, 2).acquire();
    await two.queued(name, 3);
    const states = watchQueue(two.cluster, name);
    expect(await nextOf(states)).toMatchObject({ kind: "semaphore", total: { holders: 2, waiters: 1 } });

    await permits[0]!.release();

    expect(await nextOf(states)).toMatchObject({ total: { holders: 2, waiters: 0 } });
    await states.return?.();
    await permits[1]!.release();
    await (await waiting).release();
  });

  test("misses none of 200 changes, though its line is cut again and again", async () => {
    const name = "watch/cut";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 1000 });
    using raw = await watchRaw(two.etcd.member.endpoint, `${name}/`);
    const states = watchQueue(cluster, name, { limit: 1000 });
    const seen: string[] = [];
    await nextOf(states);
    const reading = (async () => {
      for await (const state of states) seen.push(textOf(state));
    })();

    await change(name, 200, (n) => n % 40 === 39 && proxy.reset());

    await expect.poll(() => raw.seen.length, PATIENCE).toBe(200);
    const truth = statesIn(raw);
    await expect.poll(() => seen.at(-1), PATIENCE).toBe(truth.at(-1));
    expect(seen.filter((state) => !truth.includes(state))).toEqual([]);
    expect(seen).toEqual(truth.filter((state) => seen.includes(state)));
    expect(seen.length).toBeGreaterThan(20);
    await states.return?.();
    await reading;
  });

  test("yields to a slow consumer the latest state only, and each is one that etcd had at that revision", async () => {
    const name = "watch/slow";
    using raw = await watchRaw(two.etcd.member.endpoint, `${name}/`);
    const states = watchQueue(two.cluster, name, { limit: 1000 });
    await nextOf(states);
    const seen: string[] = [];

    for (let n = 0; n < 5; n++) {
      await change(`${name}/${n}`, 20);
      seen.push(textOf(await nextOf(states)));
    }
    const end = textOf(await inspect(two.cluster, name, { limit: 1000 })).replace(/^\d+/, "");
    while (!seen.at(-1)?.endsWith(end)) seen.push(textOf(await nextOf(states)));

    await expect.poll(() => raw.seen.length, PATIENCE).toBe(100);
    const truth = statesIn(raw);
    expect(seen).toEqual(truth.filter((state) => seen.includes(state)));
    expect(seen.length).toBeLessThan(40);
    await states.return?.();
  });

  test("yields the present state where etcd has forgotten what an outage hid", async () => {
    const name = "watch/forgotten";
    await using proxy = await startTcpProxy({ port: two.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, requestTimeoutMs: 1000 });
    const states = watchQueue(cluster, name);
    await nextOf(states);

    await proxy.mode("refuse");
    await change(name, 10);
    const { revision } = await two.etcd.member.status();
    await two.etcd.etcdctl(["compact", String(revision)]);
    await proxy.mode("pass");
    await list(cluster, "watch/");
    const state = await nextOf(states);

    expect(keysOf(state)).toEqual(keysOf(await inspect(two.cluster, name)));
    expect(state.total.holders + state.total.waiters).toBe(2);
    await states.return?.();
  });

  test("ends with its caller's reason, with its cluster, and with the loop", async () => {
    const caller = new AbortController();
    const aborted = watchQueue(two.cluster, "watch/ends", { signal: caller.signal });
    await nextOf(aborted);
    const pending = reasonOf(aborted.next());
    caller.abort("enough");
    expect(await pending).toBe("enough");
    const cluster = connect({ hosts: two.etcd.endpoints });
    const closed = watchQueue(cluster, "watch/ends");
    await nextOf(closed);
    const last = reasonOf(closed.next());
    await cluster.close();
    expect(await last).toMatchObject({ code: "SESSION_CLOSED" });
    for await (const { name } of watchQueue(two.cluster, "watch/ends")) {
      expect(name).toBe("watch/ends");
      break;
    }
    expect(() => watchQueue(two.cluster, "/")).toThrow(RangeError);
    expect(() => watchQueue(two.cluster, "a", { signal: 1 as never })).toThrow(TypeError);
  });
});
