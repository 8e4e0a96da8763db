// Whole programs of public calls, on memoryEtcd() and on etcd: the other fidelity tests compare single answers of the server.
import { describe, expect, it } from "vitest";
import { findEtcd } from "../../support/etcd/etcd.js";
import { CallsCampaign } from "../../sim/fidelity/calls/campaign.js";

describe.each([1, 3] as const)("random programs of calls, with %i members", (members) => {
  // Most of them are calm, or have time limits; in the last one, links are cut.
  it("have the same outcomes with memoryEtcd() in virtual time as with etcd", async () => {
    const { etcd: binary } = await findEtcd({});
    const lines: string[] = [];
    const options = { seed: "calls", members, binary, log: (line: string) => void lines.push(line) };
    const { programs, differences, unsteady } = await new CallsCampaign(options, 60, 93).run();
    expect({ lines, programs, differences, unsteady }).toEqual({
      ...{ lines: [], programs: 33, differences: 0, unsteady: 0 },
    });
  }, 240_000);
});
