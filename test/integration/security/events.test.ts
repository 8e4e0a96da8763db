// A lock may be granted by a single watch event: the event must be of the kind and for the key that the watch was
// created for.
import { expect, test } from "vitest";
import { connect, Mutex, Session } from "../../../src/index.js";
import { fieldOf, message } from "../../support/clients/protobuf.js";
import { type Call, startRawServer } from "../../support/fakes/raw-server.js";
import { ToyEtcd } from "../../support/fakes/toy-etcd.js";

const PUT = 0;
const DELETE = 1;

test.each([
  ["put of the predecessor's key", PUT, undefined],
  ["delete of somebody else's key", DELETE, "nobody/1"],
])("a %s on the watch of the predecessor grants nothing", async (_, kind, otherKey) => {
  using toy = new ToyEtcd();
  let watching: { call: Call; id: bigint; key: Buffer } | undefined;
  await using server = await startRawServer((call) => {
    const create = call.method === "Watch" ? fieldOf(call.request, 1) : undefined;
    if (create) watching ??= { call, id: fieldOf(create, 7) as bigint, key: fieldOf(create, 1) as Buffer };
    return toy.answer(call);
  });
  await using cluster = connect({ hosts: server.endpoint });
  const [one, two] = await Promise.all([Session.open(cluster), Session.open(cluster)]);
  const held = await new Mutex(one, "x").lock();
  let granted = false;
  const waiting = new Mutex(two, "x").lock().then((lock) => ((granted = true), lock));
  await expect.poll(() => watching).toBeDefined();
  // Another lock's hand-over through the same stream takes longer than the reads that verify these watches.
  for (let i = 0; i < 20; i++) await new Mutex(two, "other").withLock(() => i);

  const { call, id, key } = watching!;
  const kv: [number, string | Buffer | bigint][] = [
    [1, otherKey ?? key],
    [2, held.fence],
    [3, toy.revision + 1n],
  ];
  call.say({
    messages: [
      message([
        toy.header(),
        [2, id],
        [
          11,
          [
            [1, kind],
            [2, kv],
          ],
        ],
      ]),
    ],
  });
  // A grant would come before the answers to later requests.
  for (let i = 0; i < 5; i++) await new Mutex(two, "other").withLock(() => i);

  expect({ granted, held: held.held }).toEqual({ granted: false, held: true });
  await held.release();
  await (await waiting).release();
});
