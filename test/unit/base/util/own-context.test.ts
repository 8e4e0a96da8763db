import { createHook } from "node:async_hooks";
import { expect, onTestFinished, test } from "vitest";
import { ContextResource, inThisContext, tellOutside } from "../../../../src/base/util/own-context.js";

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** The async resources of the library that are made from now on, and not destroyed yet. */
function living(): ReadonlyMap<number, object> {
  const found = new Map<number, object>();
  const init = (id: number, type: string, _: number, resource: object): void => {
    if (type.startsWith("leasehold")) found.set(id, resource);
  };
  const hook = createHook({ init, destroy: (id) => void found.delete(id) }).enable();
  onTestFinished(() => void hook.disable());
  return found;
}

test("no async resource is left by code of users that was called, whether it threw or not", async () => {
  const left = living();

  const results = Array.from({ length: 1000 }, (_, n) => tellOutside(() => n));
  expect(results.at(-1)).toBe(999);
  const fails = (): never => {
    throw new Error("listener");
  };
  expect(() => tellOutside(fails)).toThrow("listener");
  const inside = inThisContext();
  inside(() => {});
  inside(() => {});
  await turn();

  // That of the call is collected with it.
  expect(left.size).toBe(1);
});

test("no context counts as an open handle", () => {
  const left = living();

  const made = new ContextResource("leasehold.call");

  expect([...left.values()]).toEqual([made]);
  expect([...left.values()].map((each) => (each as Partial<ContextResource>).hasRef?.())).toEqual([false]);
});
