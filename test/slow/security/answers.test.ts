import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { lieTo, type Script } from "../../support/fakes/lied-to.js";
import { LIES } from "../../support/fakes/lies.js";

/** They are idle most of the time. */
const AT_ONCE = 12;
const ROUNDS = 5;
const MIXED = 40;
/** Further complaints of the same kind add nothing. */
const ENOUGH = 5;

const strays: unknown[] = [];
const onStray = (stray: unknown) => void strays.push(stray);
const STRAYS = ["uncaughtException", "unhandledRejection"] as const;
beforeAll(() => STRAYS.forEach((each) => process.on(each, onStray)));
afterAll(() => STRAYS.forEach((each) => process.off(each, onStray)));

/** Runs each script against a separate server; `idle` are the scripts that falsified nothing. */
async function outcomes(scripts: readonly (readonly Script[])[], atOnce = AT_ONCE) {
  const rest = [...scripts];
  const troubles: string[] = [];
  const idle: (readonly Script[])[] = [];
  const work = async () => {
    for (let next = rest.pop(); next && troubles.length < ENOUGH; next = rest.pop()) {
      const { told, trouble } = await lieTo(next);
      if (told === 0) idle.push(next);
      troubles.push(...trouble.map((each) => `${JSON.stringify(next)}: ${each}`));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return { troubles, idle };
}

const script = fc.constantFrom(...Object.keys(LIES)).chain((method) =>
  fc.record({
    method: fc.constant(method),
    lies: fc.array(fc.constantFrom("none", ...Object.keys(LIES[method]!)), { minLength: 1, maxLength: 6 }),
  }),
);

describe("a server that answers nonsense", () => {
  const each = Object.entries(LIES).flatMap(([method, lies]) =>
    Object.keys(lies).map((lie) => [{ method, lies: [lie, lie, lie] }]),
  );

  test("of one kind gets no lock granted, no call to hang, nothing left behind, and crashes nobody", async () => {
    let { troubles, idle } = await outcomes(each);
    // On a busy machine, some lies come too late: those scripts run again, a few at a time.
    for (let round = 0; round < ROUNDS && idle.length > 0; round++) {
      const again = await outcomes(idle, 2);
      troubles = [...troubles, ...again.troubles];
      ({ idle } = again);
    }

    expect({ troubles, idle }).toEqual({ troubles: [], idle: [] });
    expect(strays).toEqual([]);
  }, 240_000);

  test("of several kinds at a time does not either", async () => {
    const seed = Date.now() | 0;
    const mixes = fc.sample(
      fc.uniqueArray(script, { minLength: 2, maxLength: 4, selector: (s) => s.method }),
      {
        seed,
        numRuns: MIXED,
      },
    );

    const { troubles } = await outcomes(mixes);

    expect({ seed, troubles }).toEqual({ seed, troubles: [] });
    expect(strays).toEqual([]);
  }, 240_000);
});
