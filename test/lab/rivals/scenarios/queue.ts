// Faults that hit the waiters.
import { reset } from "../faults.js";
import { untilTrue, within } from "../patience.js";
import { PATIENCE_MS, TTL_MS } from "../stage.js";
import type { Client } from "../client.js";
import type { Stage } from "../stage.js";
import { etcdOf, inQueue, letOthersTry, type Scenario } from "./scenario.js";

const WATCH = "/etcdserverpb.Watch/Watch";
const ROUNDS = 10;

export const plain: Scenario = {
  name: "plain",
  title: "three clients take turns, nothing is broken",
  async play(stage) {
    const clients = await stage.start();
    await Promise.all(clients.map((client) => takeTurns(stage, client)));
  },
};

async function takeTurns(stage: Stage, client: Client): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) await stage.serve([stage.ask(client)]);
}

export const sameProcess: Scenario = {
  name: "same-process",
  title: "a process asks for a lock that it holds already; then it releases the first",
  async play(stage) {
    const [a, b] = await stage.start();
    const first = await stage.acquire(a);
    const second = stage.ask(a);
    const third = stage.ask(b);
    const early = await stage.first([second], TTL_MS);
    await early?.increment();

    await first.increment();
    await first.release();

    await letOthersTry(stage, [third], early);
    await stage.serve([second, third]);
  },
};

export const placeDeleted: Scenario = {
  name: "place-deleted",
  title: "somebody deletes a waiter's own key",
  suits: inQueue,
  async play(stage) {
    const [a, b, c] = await stage.start();
    const etcd = etcdOf(stage);
    const hold = await stage.acquire(a);
    const second = stage.ask(b);
    await etcd.queued(stage.name, 2);
    const third = stage.ask(c);
    await etcd.queued(stage.name, 3);
    const [, key = ""] = etcd.observer.living(`${stage.name}/`);
    await stage.inflict({ fault: "delete-key", effect: "takes", hits: [b.p] }, () => etcd.deleteKey(key));
    await within(TTL_MS, second.hold);

    await hold.release();

    await stage.serve([second, third]);
  },
};

export const compacted: Scenario = {
  name: "compacted",
  title: "etcd is compacted past the revision that a waiter watches from, and its connection breaks",
  suits: inQueue,
  calls: true,
  async play(stage) {
    const [a, b] = await stage.start();
    const etcd = etcdOf(stage);
    const hold = await stage.acquire(a);
    const wait = stage.ask(b);
    const [proxy] = b.links.calls;
    await proxy?.seen(WATCH);
    await etcd.queued(stage.name, 2);
    await stage.inflict({ fault: "compact", effect: "none", hits: [] }, () => etcd.compact());
    const watches = proxy?.count(WATCH) ?? 0;
    // A short interruption while it waits, which excuses nothing.
    await reset(stage, b, "none");
    await untilTrue(PATIENCE_MS, () => Promise.resolve((proxy?.count(WATCH) ?? 0) > watches));
    await within(TTL_MS, wait.hold);

    await hold.release();

    await stage.serve([wait]);
  },
};
