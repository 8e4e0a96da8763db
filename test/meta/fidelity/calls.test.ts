import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startEtcd, type TestEtcd } from "../../../src/testing/start.js";
import { compareCalls } from "../../sim/fidelity/calls.js";

describe.each([1, 3] as const)("a random program of calls, with %i members", (members) => {
  let real: TestEtcd;

  beforeAll(async () => {
    real = await startEtcd({ members });
  }, 60_000);
  afterAll(() => real.stop());

  it("has the same outcome with memoryEtcd() in virtual time as with etcd", async () => {
    expect(await compareCalls("calls 3", real, members)).toBeUndefined();
  }, 120_000);
});
