// A leader whose work stands still does not lead on, although its lease is renewed.
import { describe, expect, test } from "vitest";
import {
  connect,
  Election,
  lead,
  type Leadership,
  type LeadOptions,
  type LockLostError,
  type LogRecord,
} from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);

/** A candidate whose work never ends by itself. */
class Service {
  readonly stop = new AbortController();
  readonly terms: Leadership[] = [];
  readonly done: Promise<void>;
  end: () => void = () => {};
  #tell = (): void => {};

  constructor(name: string, options: LeadOptions, cluster = two.cluster) {
    const work = (leadership: Leadership) => {
      this.terms.push(leadership);
      this.#tell();
      return new Promise<void>((resolve) => (this.end = resolve));
    };
    this.done = lead(cluster, name, work, { signal: this.stop.signal, ttlSeconds: 20, ...options });
  }

  async term(n: number): Promise<Leadership> {
    while (this.terms.length <= n) await new Promise<void>((resolve) => (this.#tell = resolve));
    return this.terms[n] as Leadership;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.stop.abort();
    this.end();
    await this.done;
  }
}

const aborted = async ({ signal }: Leadership): Promise<LockLostError> => {
  if (!signal.aborted)
    await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
  return signal.reason as LockLostError;
};

describe("a term ends with the loss unhealthy, and the next candidate leads, though the work has not ended", () => {
  test.each<[string, () => boolean | Promise<boolean>, RegExp]>([
    ["returns false", () => false, /healthy has returned false/],
    ["resolves with false", () => Promise.resolve(false), /healthy has returned false/],
    [
      "throws",
      () => {
        throw new Error("no disk");
      },
      /no disk/,
    ],
    ["rejects", () => Promise.reject(new Error("no disk")), /no disk/],
    ["never settles", () => new Promise(() => {}), /healthy has not passed for 400 ms/],
  ])("when healthy %s", async (how, check, message) => {
    const name = `health/${how}`;
    let isWell = true;
    const healthy = () => (isWell ? true : check());
    await using ill = new Service(name, { healthy, withinMs: 400, everyMs: 50 });
    const first = await ill.term(0);
    await using next = new Service(name, {});
    isWell = false;

    expect(await aborted(first)).toMatchObject({ code: "LOCK_LOST", loss: "unhealthy" });
    expect((await aborted(first)).message).toMatch(message);
    expect(first.held).toBe(false);
    expect((await next.term(0)).fence).toBeGreaterThan(first.fence);
    expect(ill.terms).toHaveLength(1);
  });

  test("when its heartbeats cease; until then it leads", async () => {
    await using ill = new Service("health/beats", { withinMs: 400 });
    const first = await ill.term(0);
    await using next = new Service("health/beats", {});
    const begun = performance.now();
    while (performance.now() - begun < 3 * 400) {
      first.heartbeat();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(first.held).toBe(true);

    expect((await aborted(first)).message).toContain("no heartbeat has come for 400 ms");
    expect((await next.term(0)).fence).toBeGreaterThan(first.fence);
  });
});

test("a service that was not healthy campaigns again when its work has ended and a check has passed", async () => {
  const answers = [false, false, true];
  let checks = 0;
  const healthy = () => answers[Math.min(checks++, answers.length - 1)] as boolean;
  await using service = new Service("health/again", { healthy, everyMs: 50, withinMs: 5000 });
  const first = await service.term(0);
  await aborted(first);
  expect(checks).toBe(1);
  service.end();
  const second = await service.term(1);

  expect(checks).toBeGreaterThanOrEqual(answers.length);
  expect(second.held).toBe(true);
});

test("a check that hangs once after a loss is made again, with a warning, and the process leads again", async () => {
  const lines: string[] = [];
  const log = ({ message }: LogRecord) => void lines.push(message);
  await using cluster = connect({ hosts: two.etcd.endpoints, log });
  const answers = [() => false, () => new Promise<never>(() => {}), () => true];
  let checks = 0;
  const healthy = () => answers[Math.min(checks++, answers.length - 1)]?.() as boolean;
  await using service = new Service("health/hangs", { healthy, everyMs: 50, withinMs: 300 }, cluster);
  await aborted(await service.term(0));
  service.end();

  expect((await service.term(1)).held).toBe(true);
  expect(lines.filter((line) => line.includes("has not passed"))).toEqual([
    expect.stringMatching(
      /"health\/hangs": a campaign failed \(healthy has not passed for 300 ms\); the next/,
    ),
  ]);
});

test("a check that takes most of withinMs, and passes, ends no term", async () => {
  let checks = 0;
  const healthy = () => new Promise<boolean>((resolve) => setTimeout(() => resolve(++checks > 0), 300));
  await using service = new Service("health/slow", { healthy, everyMs: 50, withinMs: 400 });
  const first = await service.term(0);
  await expect.poll(() => checks).toBeGreaterThan(3);

  expect(first.held).toBe(true);
});

test("what is thrown may be no Error, and have no text", async () => {
  const healthy = () => {
    throw Object.create(null);
  };
  await using service = new Service("health/null", { healthy, everyMs: 10 });

  expect((await aborted(await service.term(0))).message).toContain(
    "healthy has thrown a value that is no Error",
  );
});

test.each(["a resignation", "a loss"])("no check is made after the end of a term by %s", async (end) => {
  let checks = 0;
  const healthy = () => ++checks > 0;
  await using service = new Service(`health/after ${end}`, { healthy, everyMs: 20 });
  const first = await service.term(0);
  if (end === "a loss") await two.etcd.etcdctl(["del", first.key]);
  else await first.resign();
  await aborted(first);
  const before = checks;
  // Ten times as long as between two checks.
  for (let n = 0; n < 10; n++) await new Promise((resolve) => setTimeout(resolve, 20));

  expect(checks).toBe(before);
});

test("the grace passes between the abort and the resignation", async () => {
  await using service = new Service("health/grace", { healthy: () => false, everyMs: 10, graceMs: 60_000 });
  const first = await service.term(0);
  await aborted(first);

  expect((await new Election(two.cluster, "health/grace").leader())?.fence).toBe(first.fence);
  await expect(first.resign()).rejects.toMatchObject({ loss: "unhealthy" });
  expect(await new Election(two.cluster, "health/grace").leader()).toBeUndefined();
});

test("a heartbeat without a limit does nothing, and without health options a term lasts", async () => {
  const leadership = await new Election(two.cluster, "health/none").campaign("x");
  leadership.heartbeat();
  expect(leadership.held).toBe(true);
  await leadership.resign();
});

test.each<[LeadOptions, string]>([
  [{ healthy: true as unknown as () => boolean }, "Expected healthy to be a function, got true"],
  [{ everyMs: 5 }, "Option everyMs needs healthy, which it calls"],
  [{ graceMs: 5 }, "Option graceMs needs healthy or withinMs"],
  [{ withinMs: 0 }, "Expected withinMs to be a whole number from 1 to 2147483647, got 0"],
  [
    { healthy: () => true, withinMs: 500, everyMs: 500 },
    "Expected everyMs to be less than withinMs (500), got 500",
  ],
])("bad options are refused before anything is sent: %o", async (options, message) => {
  await using cluster = connect({ hosts: "http://127.0.0.1:1" });
  await expect(lead(cluster, "health/bad", () => {}, options)).rejects.toThrow(message);
});
