import { expect, test } from "vitest";
import { UnaryCall } from "../../../src/etcd/etcd3/calls.js";
import { ConcurrencyLimit } from "../../../src/etcd/client.js";
import { FakeClock } from "../../support/fakes/fake-clock.js";

test("a call whose caller has left before it is sent is never sent", async () => {
  let sent = 0;
  const call = new UnaryCall("a:1", undefined).send(
    new FakeClock(),
    { timeoutMs: 1000, signal: AbortSignal.abort() },
    () => Promise.resolve(++sent),
  );

  await expect(call).rejects.toMatchObject({ kind: "cancelled" });
  expect(sent).toBe(0);
});

test("a slot passes over any number of callers that have left, to the first that still waits", async () => {
  const slots = new ConcurrencyLimit();
  while (slots.tryAcquire());
  const left = Array.from({ length: 20_000 }, () => slots.acquire(undefined, () => false));
  const waiting = slots.acquire(undefined, () => true);

  slots.release();

  expect(await waiting).toBe(true);
  expect(new Set(await Promise.all(left))).toEqual(new Set([false]));
  expect(slots.tryAcquire()).toBe(false);
});
