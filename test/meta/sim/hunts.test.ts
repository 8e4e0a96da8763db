import { describe, expect, it } from "vitest";
import { MUTANTS } from "../../lab/mutants/table.js";
import { MUTANT_HUNTS } from "../../sim/bugs/hints.js";
import { brokenIn, replayed, type Ground } from "../../sim/bugs/hunt.js";
import { BUGS } from "../../sim/bugs/table.js";
import { mutantOf } from "../../sim/run/build.js";

const huntFor = async (name: string) => ({
  build: await mutantOf(name),
  ground: MUTANT_HUNTS[name] as Ground,
});

describe("a build", () => {
  it("whose rules for etcd's rejections are patched reads rejections by its own rules", async () => {
    const hunt = await huntFor("rejection-never-executed");

    expect((await brokenIn(hunt, 1)).broken).toEqual(["a rejected call leaves the queue"]);
  });
});

describe("a patch", () => {
  it.each([...MUTANTS, ...BUGS])(
    "of $name uses no time and no randomness but those of the clock",
    ({ patches }) => {
      for (const { to } of patches)
        expect(to).not.toMatch(/setTimeout|setImmediate|Date\.|Math\.random|performance/);
    },
  );
});

describe("a replay", () => {
  it("is equal if it breaks the same invariants with the same first sentence", async () => {
    const hunt = await huntFor("retry-taken-for-loss");
    const found = await brokenIn(hunt, 1);

    expect(found.broken).toEqual(["I11"]);
    expect(await replayed(hunt, found, 3)).toBe(3);
    expect(await replayed(hunt, { ...found, example: "another sentence" }, 1)).toBe(0);
  });
});
