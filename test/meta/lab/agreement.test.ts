import { describe, expect, it } from "vitest";
import { assertAgreement } from "../../lab/runner/agreement.js";
import type { Member } from "../../lab/runner/ground.js";

const member = (
  name: string,
  { running = true, hash = 7, revision = "12", kvs = [{ key: "a" }] } = {},
): Member =>
  ({
    ...{ name, running },
    gateway: () => Promise.resolve({ header: { revision }, hash, kvs }),
  }) as unknown as Member;

/** Its first requests fail, like those of a member that was cut off until its peers have reconnected to it. */
function returning(name: string, failures: number): Member {
  let asked = 0;
  const { running, gateway } = member(name);
  const late = (path: string, body: unknown) =>
    ++asked > failures
      ? gateway(path, body)
      : Promise.reject(new Error(`${name}: etcdserver: request timed out`));
  return { name, running, gateway: late } as unknown as Member;
}

describe("the members' agreement at the end of a run", () => {
  it("is there when all that run have the same data at the same revision", async () => {
    const members = [member("m1"), member("m2"), member("m3", { running: false, hash: 8 })];

    await expect(assertAgreement(members)).resolves.toBeUndefined();
  });

  it.each([
    ["other data", { hash: 8 }],
    ["another revision", { revision: "47" }],
  ])("is refused with every member named when one has %s", async (_, other) => {
    const members = [member("m1"), member("m2", other), member("m3")];

    await expect(assertAgreement(members)).rejects.toThrow(/m1: 7 at revision 12, m2: .*, m3: /);
  });

  it("is asked for again while a member that was cut off does not answer yet", async () => {
    await expect(assertAgreement([member("m1"), returning("m2", 3)])).resolves.toBeUndefined();
  });

  it("is given up, with the member's reason, when one does not answer in time", async () => {
    const members = [member("m1"), returning("m2", Infinity)];

    await expect(assertAgreement(members, { timeoutMs: 150 })).rejects.toThrow("m2: etcdserver: request");
  });

  it("is one of the keys alone where there are users: each member may hash their passwords by itself", async () => {
    const salted = [member("m1"), member("m2", { hash: 8 })];
    await expect(assertAgreement(salted, { users: true })).resolves.toBeUndefined();
    const different = [member("m1"), member("m2", { kvs: [{ key: "b" }] })];
    await expect(assertAgreement(different, { users: true })).rejects.toThrow(/m1: .* at revision 12, m2: /);
    const behind = [member("m1"), member("m2", { revision: "11" })];
    await expect(assertAgreement(behind, { users: true })).rejects.toThrow(/revision 12, m2: .* revision 11/);
  });
});
