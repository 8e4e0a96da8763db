// What a lane records of a member that leaves: the checker judges by it whether the member has drained.
import { afterEach, expect, it, vi } from "vitest";
import type { Shard, ShardsOptions } from "../../../src/index.js";
import type { Context } from "../../lab/runner/context.js";
import { ShardLane } from "../../lab/runner/shard-lane.js";

const SHARD = "lock/g/shard/0";
const END_MS = 60_000;
const NS = 1_000_000n;

interface Noted {
  readonly k: string;
  readonly drained?: boolean;
}

interface Recorded {
  readonly moved: readonly Noted[];
  /** So often its user has aborted while a member left. */
  readonly aborts: number;
}

/** A lane whose members own one shard, and let it go `earlyMs` before their `drainMs` are over. */
async function lane(seed: number, earlyMs: number): Promise<Recorded> {
  const noted: Noted[] = [];
  const ended = Date.now() + END_MS;
  let [ids, aborts] = [0, 0];
  const time: Context["time"] = {
    now: () => BigInt(Date.now()) * NS,
    delay: (ms) => new Promise((resolve) => setTimeout(resolve, ms)),
    after: (ms, run) => {
      const timer = setTimeout(run, ms);
      return () => clearTimeout(timer);
    },
    turn: (run) => void setTimeout(run, 0),
  };
  const shards = (_: unknown, __: string, options: ShardsOptions, work: (shard: Shard) => Promise<void>) => {
    const [moved, released] = [new AbortController(), new AbortController()];
    const fence = BigInt(++ids);
    const lock = { key: `${SHARD}/1`, held: true, signal: released.signal };
    const shard = { id: 0, name: SHARD, fence, signal: moved.signal, lock } as unknown as Shard;
    const run = async (): Promise<void> => {
      while (!moved.signal.aborted)
        await work(shard).then(
          () => time.delay(10_000),
          () => time.delay(1000),
        );
    };
    const running = run();
    let closed: Promise<void> | undefined;
    const close = async (): Promise<void> => {
      await time.delay((options.drainMs ?? 0) - earlyMs);
      moved.abort(Object.assign(new Error("moved"), { code: "SHARD_MOVED" }));
      await running;
      released.abort(Object.assign(new Error("released"), { code: "LOCK_RELEASED" }));
    };
    const closeOnce = () => (closed ??= close());
    options.signal?.addEventListener("abort", () => {
      if (closed && !moved.signal.aborted) aborts++;
      void closeOnce();
    });
    return Promise.resolve({
      count: 1,
      owner: () => undefined,
      owners: async function* () {},
      close: closeOnce,
    });
  };
  const context = {
    ...{
      p: "w1",
      leasehold: { shards },
      cluster: {},
      locks: ["lock/g"],
      ttlSeconds: 1,
      shards: 1,
      calmMs: 0,
    },
    register: { read: () => Promise.reject(new Error("away")) },
    ...{ finishing: () => Date.now() >= ended, note: (step: Noted) => noted.push(step), time },
    nextId: () => ++ids,
  } as unknown as Context;
  await new ShardLane(context, { n: 0, seed: String(seed) }).run();
  return { moved: noted.filter(({ k }) => k === "moved"), aborts };
}

/** With aborts while a member leaves. */
const SEEDS = [114, 457];

afterEach(() => vi.useRealTimers());

it.each([
  ["in time, whenever its user aborts as well", 0, true],
  ["too early", 45, false],
])("a member that leaves lets go %s", async (_, earlyMs, drained) => {
  vi.useFakeTimers();
  const lanes = SEEDS.map((seed) => lane(seed, earlyMs));
  await vi.advanceTimersByTimeAsync(2 * END_MS);
  const recorded = await Promise.all(lanes);
  const moved = recorded.flatMap((each) => each.moved);
  if (drained) expect(recorded.every(({ aborts }) => aborts > 0)).toBe(true);
  expect(moved.length).toBeGreaterThan(SEEDS.length);
  expect(new Set(moved.map((step) => step.drained))).toEqual(new Set([drained]));
});
