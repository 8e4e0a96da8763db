import { describe, expect, it } from "vitest";
import { assertAgreement } from "../chaos/lab/agreement.js";
import type { Member } from "../chaos/lab/ground.js";

const member = (name: string, { running = true, hash = 7, revision = "12" } = {}): Member =>
  ({
    ...{ name, running },
    gateway: () => Promise.resolve({ header: { revision }, hash }),
  }) as unknown as Member;

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
});
