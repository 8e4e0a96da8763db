import { channel } from "node:diagnostics_channel";
import { setImmediate as tick, setTimeout as delay } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { ClusterLockManager, type WebLockOptions } from "../../../src/index.js";
import { twoManagers } from "../../support/fixtures/web-locks.js";

const two = twoManagers(20);

/** What both managers have in common. */
interface Locks {
  request(name: string, options: WebLockOptions, callback: (lock: unknown) => unknown): Promise<unknown>;
}

const EVENTS = ["start", "grant", "miss", "end"] as const;
const shared = { mode: "shared" } as const;
const ifAvailable = { ifAvailable: true } as const;
const failure = new TypeError("of the callback");

/** The fields of a message, with the name of its error; or what the scenario itself has logged. */
type Logged = string | Readonly<Record<string, unknown>>;
type Scenario = (locks: Locks, name: string, log: (what: string) => void) => Promise<unknown>;

/** A lock that is held until `end` is called. */
async function holding(locks: Locks, name: string, options: WebLockOptions = {}) {
  let end: () => void = () => {};
  const ended = new Promise<void>((resolve) => (end = resolve));
  let settled: Promise<unknown> = Promise.resolve();
  await new Promise<void>((granted, failed) => {
    settled = locks.request(name, options, () => (granted(), ended));
    settled.catch(failed);
  });
  return { settled, end };
}

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  granted: async (locks, name, log) => {
    await locks.request(name, {}, () => log("callback"));
    log("settled");
  },
  shared: async (locks, name) => {
    const first = await holding(locks, name, shared);
    const second = await holding(locks, name, shared);
    first.end();
    await first.settled;
    second.end();
    await second.settled;
  },
  throws: async (locks, name, log) => {
    const thrower = () => {
      throw failure;
    };
    await locks.request(name, {}, thrower).catch((error) => log(`rejected: ${error === failure}`));
  },
  rejects: (locks, name, log) =>
    locks
      .request(name, {}, () => Promise.reject(failure))
      .catch((error) => log(`rejected: ${error === failure}`)),
  available: (locks, name, log) => locks.request(name, ifAvailable, () => log("callback")),
  missed: async (locks, name, log) => {
    const held = await holding(locks, name);
    await locks.request(name, ifAvailable, (lock) => log(`callback: ${String(lock)}`));
    await locks.request(name, ifAvailable, () => Promise.reject(failure)).catch(() => log("rejected"));
    held.end();
    await held.settled;
  },
  stolen: async (locks, name, log) => {
    const held = await holding(locks, name);
    const rejected = held.settled.catch((error: Error) => log(`rejected: ${error.name}`));
    await locks.request(name, { steal: true }, () => rejected);
    held.end();
  },
  aborted: async (locks, name, log) => {
    const held = await holding(locks, name);
    const giveUp = new AbortController();
    const waiting = locks.request(name, { signal: giveUp.signal }, () => log("callback"));
    giveUp.abort(failure);
    await waiting.catch((error) => log(`rejected: ${error === failure}`));
    held.end();
    await held.settled;
  },
  invalid: async (locks, name, log) => {
    const invalid = [
      locks.request(`-${name}`, {}, () => log("callback")),
      locks.request(name, { steal: true, ifAvailable: true }, () => log("callback")),
      locks.request(name, { signal: AbortSignal.abort(failure) }, () => log("callback")),
    ];
    for (const { status } of await Promise.allSettled(invalid)) log(status);
  },
};

const requested = (mode = "exclusive") => ({ name: "its name", mode });
const start = (mode?: string): Logged => ({ event: "start", ...requested(mode) });
const grant = (mode?: string): Logged => ({ event: "grant", ...requested(mode) });
const miss: Logged = { event: "miss", ...requested() };
const end = (fields: object = {}): Logged => {
  return { event: "end", ...requested(), ifAvailable: false, steal: false, error: undefined, ...fields };
};

/** The messages of `navigator.locks` in Node.js 24.21 and 26.10. */
const NODE: Readonly<Record<string, readonly Logged[]>> = {
  granted: [start(), grant(), "callback", end(), "settled"],
  shared: [
    ...[start("shared"), grant("shared"), start("shared"), grant("shared")],
    ...[end({ mode: "shared" }), end({ mode: "shared" })],
  ],
  throws: [start(), grant(), end({ error: "TypeError" }), "rejected: true"],
  rejects: [start(), grant(), end({ error: "TypeError" }), "rejected: true"],
  available: [start(), grant(), "callback", end({ ifAvailable: true })],
  missed: [
    ...[start(), grant(), start(), miss, "callback: null", end({ ifAvailable: true })],
    ...[start(), miss, end({ ifAvailable: true, error: "TypeError" }), "rejected", end()],
  ],
  stolen: [
    ...[start(), grant(), start(), grant()],
    ...[end({ error: "AbortError" }), "rejected: AbortError", end({ steal: true })],
  ],
  // Its entry stays in the queue of Node.js, and ends with its turn, without an error.
  aborted: [start(), grant(), start(), "rejected: true", end(), end()],
  invalid: ["rejected", "rejected", "rejected"],
};

/** Our entry leaves the queue at the abort, and the request has then ended. */
const OURS: typeof NODE = {
  ...NODE,
  aborted: [start(), grant(), start(), end({ error: "TypeError" }), "rejected: true", end()],
};

/** The messages of each scenario, with those of other names left out. */
async function messagesOf(locks: Locks, prefix: string): Promise<Record<string, readonly Logged[]>> {
  const all: Record<string, readonly Logged[]> = {};
  for (const [scenario, run] of Object.entries(SCENARIOS)) {
    all[scenario] = await messagesDuring(`${prefix}/${scenario}`, (name, log) => run(locks, name, log));
  }
  return all;
}

async function messagesDuring(
  name: string,
  run: (name: string, log: (what: string) => void) => Promise<unknown>,
): Promise<readonly Logged[]> {
  const logged: Logged[] = [];
  const stops = EVENTS.map((event) => {
    const hear = (message: unknown) => {
      const fields = message as { readonly name: string; readonly error?: Error };
      if (fields.name !== name) return;
      const error = "error" in fields ? { error: fields.error?.name } : {};
      logged.push({ event, ...fields, name: "its name", ...error });
    };
    channel(`locks.request.${event}`).subscribe(hear);
    return () => channel(`locks.request.${event}`).unsubscribe(hear);
  });
  try {
    await run(name, (what) => void logged.push(what));
    // A request of Node.js that was aborted ends after its caller knows.
    await tick();
    return logged;
  } finally {
    for (const stop of stops) stop();
  }
}

/** Two requests that are under way at once: only the order of each one's own messages is the same everywhere. */
function withoutOrder({ stolen = [], ...rest }: Readonly<Record<string, readonly Logged[]>>): unknown {
  const counted = stolen.map((each) => JSON.stringify(each)).sort();
  return { ...rest, stolen: counted };
}

const nodesOwn = (globalThis as { readonly navigator?: { readonly locks?: Locks } }).navigator?.locks;
/** Node.js has had `navigator.locks` since 24.5, and its channels since 24.15. */
const nodeHasChannels = async (locks: Locks): Promise<boolean> =>
  (await messagesDuring("has channels", (name) => locks.request(name, {}, () => undefined))).length > 0;

describe("the channels locks.request.*", () => {
  test("have the messages of Node's own manager, in the same order", async () => {
    const ours = await messagesOf(two.locks, "ours");

    expect(withoutOrder(ours)).toStrictEqual(withoutOrder(OURS));
    if (nodesOwn && (await nodeHasChannels(nodesOwn))) {
      expect(withoutOrder(await messagesOf(nodesOwn, "node"))).toStrictEqual(withoutOrder(NODE));
    }
  });

  test("tell of a thief's grant after its start, and of the robbed holder's end before its request rejects", async () => {
    const { stolen = [] } = {
      stolen: await messagesDuring("order", (n, log) => SCENARIOS.stolen!(two.locks, n, log)),
    };
    const at = (what: Logged) => stolen.findIndex((each) => JSON.stringify(each) === JSON.stringify(what));

    expect(at(end({ error: "AbortError" }))).toBeLessThan(at("rejected: AbortError"));
    expect(stolen.at(-1)).toEqual(end({ steal: true }));
  });

  test.each<
    [string, Readonly<Record<string, unknown>>, (abort: () => void, close: () => unknown) => unknown]
  >([
    ["aborts its signal", { message: "of the subscriber" }, (abort) => abort()],
    ["closes its manager", { name: "InvalidStateError" }, (_, close) => close()],
  ])("let a subscriber end a request that would wait: one that %s at its start", async (_, reason, act) => {
    const name = `ended at its start/${_}`;
    const held = await holding(two.locks, name);
    const manager = new ClusterLockManager(two.cluster);
    const giveUp = new AbortController();
    const hear = (): void => {
      act(
        () => giveUp.abort(new Error("of the subscriber")),
        () => manager.close(),
      );
    };

    channel("locks.request.start").subscribe(hear);
    const waiting = manager.request(name, { signal: giveUp.signal }, () => "granted");
    channel("locks.request.start").unsubscribe(hear);

    await expect(Promise.race([waiting, delay(2000, "waits")])).rejects.toMatchObject(reason);
    held.end();
    await held.settled;
  });

  test("have no event of a request whose name is too long: it never began", async () => {
    const long = "x".repeat(5000);
    const messages = await messagesDuring(long, (name, log) =>
      two.locks.request(name, () => undefined).catch((error: Error) => log(error.name)),
    );

    expect(messages).toEqual(["RangeError"]);
  });
});
