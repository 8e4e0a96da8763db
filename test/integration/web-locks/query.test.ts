import { afterEach, describe, expect, test } from "vitest";
import { ClusterLockManager, Mutex, type WebLockInfo, type WebLockOptions } from "../../../src/index.js";
import { counts, type HeldForTest, holding, twoManagers } from "../../support/fixtures/web-locks.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

const two = twoManagers(20);
const shared = { mode: "shared" } as const;
const modes = (list: readonly WebLockInfo[]) => list.map(({ mode }) => mode);
const clients = (list: readonly WebLockInfo[]) => list.map(({ clientId }) => clientId);

const open: HeldForTest[] = [];
const hold = async (...given: Parameters<typeof holding>) => {
  const held = await holding(...given);
  open.push(held);
  return held;
};
afterEach(async () => {
  await Promise.all(open.splice(0).map((held) => held.release().catch(() => undefined)));
});

describe("query", () => {
  test("tells two empty lists when there are no locks", async () => {
    expect(await two.locks.query()).toStrictEqual({ held: [], pending: [] });
  });

  test("tells name, mode and client of each lock, and nothing else", async () => {
    await hold(two.locks, "told", shared);
    const waiting = two.locks.request("told", () => undefined);
    // The other manager has a connection of its own: its read may come before the join.
    await expect.poll(async () => (await two.other.query()).pending).toHaveLength(1);

    const { held, pending } = await two.other.query();

    const uuid = expect.stringMatching(
      /^[\da-f]{8}-[\da-f]{4}-4[\da-f]{3}-8[\da-f]{3}-[\da-f]{12}$/,
    ) as string;
    expect(held).toStrictEqual([{ name: "told", mode: "shared", clientId: uuid }]);
    expect(pending).toStrictEqual([{ name: "told", mode: "exclusive", clientId: uuid }]);
    expect(clients(held)).toEqual(clients(pending));
    await open.pop()?.release();
    await waiting;
  });

  test("shows requests made before it that nobody has awaited: what can be granted as held, the rest as pending", async () => {
    let end = () => {};
    const until = new Promise<void>((resolve) => (end = resolve));
    const all = [...Array<WebLockOptions>(5).fill(shared), {}, shared, shared];
    const requests = all.map((options) => two.locks.request("unawaited", options, () => until));

    const { held, pending } = await two.locks.query();

    expect([modes(held), modes(pending)]).toEqual([
      Array(5).fill("shared"),
      ["exclusive", "shared", "shared"],
    ]);
    end();
    await Promise.all(requests);
  });

  test("shows several that share as held, and those behind one that is exclusive as pending, in order", async () => {
    await hold(two.locks, "order", shared);
    await hold(two.other, "order", shared);
    const requests = [two.other.request("order", () => undefined)];
    await counts(two.locks, "order", 2, 1);
    requests.push(two.locks.request("order", shared, () => undefined));

    const { held, pending } = await two.locks.query();

    expect([modes(held), modes(pending)]).toEqual([
      ["shared", "shared"],
      ["exclusive", "shared"],
    ]);
    expect(clients(pending)).toEqual(clients(held).toReversed());
    await Promise.all(open.splice(0).map((each) => each.release()));
    await Promise.all(requests);
  });

  test("has one client for each manager, the same for all its requests, also with one cluster", async () => {
    const third = new ClusterLockManager(two.cluster);
    await hold(two.locks, "one", shared);
    await hold(two.locks, "two", shared);
    await hold(third, "one", shared);
    await hold(two.other, "one", shared);

    const { held } = await two.locks.query();

    const [ones, twos] = ["one", "two"].map((name) => clients(held.filter((info) => info.name === name)));
    expect(new Set(ones).size).toBe(3);
    expect(twos).toEqual([ones?.[0]]);
  });

  test("lets a deadlock be seen: who holds what the other one waits for", async () => {
    await hold(two.locks, "left");
    await hold(two.other, "right");
    const { signal } = new AbortController();
    const stop = new AbortController();
    const waiting = [
      two.locks.request("right", { signal: stop.signal }, () => undefined),
      two.other.request("left", { signal: stop.signal }, () => undefined),
    ].map(reasonOf);
    await counts(two.locks, "left", 1, 1);
    await counts(two.other, "right", 1, 1);

    const { held, pending } = await two.locks.query();

    const clientOf = (list: readonly WebLockInfo[], name: string) =>
      list.find((it) => it.name === name)?.clientId;
    expect(clientOf(held, "left")).toBe(clientOf(pending, "right"));
    expect(clientOf(held, "right")).toBe(clientOf(pending, "left"));
    expect(signal.aborted).toBe(false);
    stop.abort();
    await Promise.all(waiting);
  });

  test("does not show what was released in this process, however late etcd hears of it", async () => {
    const held = await hold(two.locks, "released");
    const next = two.locks.request("released", () => new Promise<void>((resolve) => setTimeout(resolve, 30)));
    await counts(two.locks, "released", 1, 1);
    open.splice(0);

    void held.release();
    await Promise.resolve();
    const { held: after, pending } = await two.locks.query();

    expect([modes(after), modes(pending)]).toEqual([["exclusive"], []]);
    await next;
  });

  test("shows a mutex of another kind of client as exclusive, with its lease for a client", async () => {
    const name = `web-locks/${Buffer.from("go", "utf16le").toString("base64url")}`;
    const lock = await new Mutex(two.otherCluster, name).lock();

    const { leaseId } = await two.otherCluster.session();
    expect((await two.locks.query()).held).toEqual([
      { name: "go", mode: "exclusive", clientId: leaseId.toString(16) },
    ]);
    await lock.release();
  });

  test("passes over keys that are no lock's, though a lock waits for one below its own name", async () => {
    const queue = `web-locks/${Buffer.from("below", "utf16le").toString("base64url")}`;
    const keys = ["web-locks/stray", "web-locks/!/7b", `${queue}/deep/er/7b`];
    for (const key of keys) await two.etcd.etcdctl(["put", key, "not json"]);
    const waiting = two.locks.request("below", () => "granted");

    const { held, pending } = await two.locks.query();

    expect([held, pending.map(({ name }) => name)]).toEqual([[], ["below"]]);
    for (const key of keys) await two.etcd.etcdctl(["del", key]);
    expect(await waiting).toBe("granted");
  });
});
