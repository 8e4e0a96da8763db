import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { LeaseholdError } from "../../../src/index.js";
import { settle } from "../../support/fakes/fake-clock.js";
import { FAILURES, LEFT, NonsenseWorld, STALE_TWISTS, TWISTS } from "../../support/fakes/nonsense-world.js";

type Step = (world: NonsenseWorld) => unknown;

const pick = fc.nat(20);
const revision = fc.constantFrom(0n, 1n, 40n, 41n, 51n, 60n, 10n ** 9n, -1n);
/** Shown by fast-check when a run fails. */
const step = (name: string, run: Step): Step => Object.assign(run, { toString: () => name });

const steps: fc.Arbitrary<Step> = fc.oneof(
  { weight: 2, arbitrary: fc.constant(step("lock", (world) => world.call("lock"))) },
  fc.constant(step("tryLock", (world) => world.call("tryLock"))),
  { weight: 6, arbitrary: pick.map((i) => step(`answer ${i}`, (world) => world.answer(i, "true"))) },
  {
    weight: 4,
    arbitrary: fc
      .tuple(pick, fc.constantFrom(...TWISTS, ...STALE_TWISTS))
      .map(([i, twist]) => step(`answer ${i}: ${twist}`, (world) => world.answer(i, twist))),
  },
  fc
    .tuple(pick, fc.constantFrom(...(Object.keys(FAILURES) as (keyof typeof FAILURES)[])))
    .map(([i, failure]) => step(`fail ${i}: ${failure}`, (world) => world.fail(i, failure))),
  {
    weight: 4,
    arbitrary: fc
      .tuple(pick, revision)
      .map(([i, at]) => step(`created ${i} at ${at}`, (world) => world.created(i, at))),
  },
  {
    weight: 3,
    arbitrary: fc
      .tuple(pick, revision)
      .map(([i, at]) => step(`event ${i} at ${at}`, (world) => world.event(i, at))),
  },
  fc
    .tuple(pick, fc.boolean())
    .map(([i, refused]) => step(`cancelled ${i} ${refused}`, (world) => world.cancelled(i, refused))),
  fc.constant(step("watches end", (world) => world.endWatches())),
  fc
    .tuple(fc.constantFrom(0x77n, 0x78n), fc.constantFrom(10, 10, 1, 1e9), fc.constantFrom(0n, 3n, 99n))
    .map(([id, ttl, term]) => step(`renewed ${id} ${ttl} ${term}`, (world) => world.renewal(id, ttl, term))),
  fc.constant(step("abort", (world) => world.abort())),
  { weight: 4, arbitrary: fc.nat(900).map((ms) => step(`pass ${ms}`, (world) => world.clock.pass(ms))) },
);

/** Any end but a lock or an internal error. */
const isOrderly = (end: unknown): boolean =>
  end === "refused" || end === LEFT || end instanceof LeaseholdError;

describe("a member that says anything but that the holder is gone", () => {
  test("grants no lock, keeps no caller beyond its time limit, and lets the session end", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(steps, { minLength: 10, maxLength: 60 }), async (script) => {
        const world = new NonsenseWorld();
        world.call("lock");
        for (const run of script) {
          await run(world);
          await settle();
        }

        await world.end();

        expect(world.ends.filter((end) => !isOrderly(end))).toEqual([]);
        expect(world.ends).toHaveLength(world.calls);
        expect([world.lease.signal.aborted, world.clock.timers]).toEqual([true, 0]);
      }),
      { numRuns: Number(process.env["LEASEHOLD_FUZZ"] ?? 200) },
    );
  }, 60_000);
});
