import { expect, it } from "vitest";
import { assertAgreement } from "../../lab/runner/agreement.js";
import type { Member } from "../../lab/runner/ground.js";

/** What a member says of its data; its first requests fail, as after it was cut off. */
function member(name: string, { running = true, hash = 7, key = "a", failures = 0 } = {}): Member {
  let asked = 0;
  const gateway = () =>
    ++asked > failures
      ? Promise.resolve({ header: { revision: "12" }, hash, kvs: [{ key }] })
      : Promise.reject(new Error("etcdserver: request timed out"));
  return { name, running, gateway } as unknown as Member;
}

it("members that run agree when they have the same data, at the latest when all of them answer again", async () => {
  const stopped = member("m3", { running: false, hash: 8 });
  await expect(assertAgreement([member("m1"), member("m2", { failures: 3 }), stopped])).resolves.toBe(
    undefined,
  );
  await expect(assertAgreement([member("m1"), member("m2", { hash: 8 })])).rejects.toThrow(/m1: .*, m2: /);
});

it("where there are users, they agree when they have the same keys: each may hash the passwords by itself", async () => {
  const salted = [member("m1"), member("m2", { hash: 8 })];
  await expect(assertAgreement(salted, { users: true })).resolves.toBe(undefined);
  const different = [member("m1"), member("m2", { key: "b" })];
  await expect(assertAgreement(different, { users: true })).rejects.toThrow(/m1: .*, m2: /);
});
