// A child process that uses leasehold as a user's program does, on commands from its parent (`workers.js`).
import { Sampler } from "../fixtures/claims.js";

/** @typedef {import("../../../src/index.js").Cluster} Cluster */
/** @typedef {import("../../../src/index.js").Session} Session */
/** @typedef {import("../../../src/index.js").Mutex} Mutex */
/** @typedef {import("../../../src/index.js").Lock} Lock */

// A variable, so that the types come from the sources and type checking needs no build.
const packageName = "leasehold";
const { connect, Mutex, Session } = /** @type {typeof import("../../../src/index.js")} */ (
  await import(packageName)
);

const sampler = new Sampler();
/** @type {Map<string, Cluster | Session>} */
const sources = new Map();
/** @type {Map<string, Mutex>} */
const mutexes = new Map();
/** @type {Map<string, Lock>} */
const locks = new Map();
/** @type {Map<string, AbortController>} */
const waits = new Map();

const now = () => process.hrtime.bigint();
const send = (/** @type {object} */ message) => process.connected && process.send?.(message);

/** @param {unknown} error @returns {import("./workers.js").ErrorShape} */
function shapeOf(error) {
  if (!(error instanceof Error)) return { name: typeof error, message: String(error) };
  const { name, message, code, loss, cause } = /** @type {Error & { code?: string, loss?: string }} */ (
    error
  );
  return { name, message, code, loss, cause: cause instanceof Error ? shapeOf(cause) : undefined };
}

/** @param {string} as */
function lockOf(as) {
  const lock = locks.get(as);
  if (lock === undefined) throw new RangeError(`Expected the name of a lock taken before, got ${as}`);
  return lock;
}

/** @param {string} source @param {string} name */
function mutexOf(source, name) {
  const id = JSON.stringify([source, name]);
  const mutex = mutexes.get(id) ?? new Mutex(/** @type {Session} */ (sources.get(source)), name);
  mutexes.set(id, mutex);
  return mutex;
}

/** @param {string} as @param {Session} session */
function followSession(as, session) {
  session.addEventListener("statechange", ({ state, previous }) =>
    send({ type: "state", session: as, state, previous, at: now() }),
  );
}

/** @param {string} as @param {Lock} lock */
function followLock(as, lock) {
  locks.set(as, lock);
  sampler.follow(as, lock);
  const ended = async () => {
    sampler.sample();
    const end = { at: now(), held: lock.held };
    // It waits until etcd has said why a key is gone.
    await lock.release().catch(() => undefined);
    send({ type: "ended", lock: as, ...end, reason: shapeOf(lock.signal.reason) });
  };
  if (lock.signal.aborted) void ended();
  else lock.signal.addEventListener("abort", () => void ended(), { once: true });
}

/** @typedef {import("./workers.js").TakeOptions} TakeOptions */

const commands = {
  /** @param {{ options: import("../../../src/index.js").ConnectOptions }} _ */
  connect({ options }) {
    sources.set("cluster", connect(options));
  },
  /** @param {{ as: string, options: import("../../../src/index.js").SessionOptions }} _ */
  async session({ as, options }) {
    const session = await Session.open(/** @type {Cluster} */ (sources.get("cluster")), options);
    sources.set(as, session);
    followSession(as, session);
    return { leaseId: session.leaseId, ttlSeconds: session.ttlSeconds };
  },
  /** @param {TakeOptions & { name: string, how: "lock" | "tryLock" }} _ */
  async take({ as, name, how, source = "cluster", timeoutMs, rejoin }) {
    const abort = new AbortController();
    waits.set(as, abort);
    const lock = await mutexOf(source, name)[how]({
      signal: abort.signal,
      timeoutMs,
      ...(rejoin && { rejoin }),
    });
    const at = now();
    if (lock === undefined) return undefined;
    followLock(as, lock);
    return { at, fence: lock.fence, key: lock.key };
  },
  /** Resolves when the present standing session has ended. */
  async standingEnd() {
    const { signal } = await /** @type {Cluster} */ (sources.get("cluster")).session();
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener("abort", resolve));
  },
  /** @param {{ as: string }} _ */
  abort({ as }) {
    waits.get(as)?.abort(new Error("aborted by the test"));
  },
  /** @param {{ as: string }} _ */
  async release({ as }) {
    await lockOf(as).release();
    return { at: now() };
  },
  /** @param {{ as: string }} _ */
  read({ as }) {
    const lock = lockOf(as);
    return { at: now(), held: lock.held, remainingMs: lock.remainingMs(), aborted: lock.signal.aborted };
  },
  /** @param {{ as: string }} _ */
  claims({ as }) {
    sampler.sample();
    return sampler.runs(as);
  },
  /** @param {{ source: string, drainMs?: number }} _ */
  async close({ source, drainMs }) {
    await sources.get(source)?.close(drainMs === undefined ? {} : { drainMs });
  },
  /** Moves the wall clock; needs the preload `shift-date.js`. @param {{ ms: number }} _ */
  shiftDate({ ms }) {
    const before = Date.now();
    /** @type {{ shiftDate?: (ms: number) => void }} */ (globalThis).shiftDate?.(ms);
    return { moved: Date.now() - before };
  },
  wallClock: () => Date.now(),
  /** Disconnects from the parent: from here on, only leasehold can keep the process alive. */
  leave() {
    process.off("disconnect", quit);
    setImmediate(() => process.disconnect());
  },
};

function quit() {
  process.exit(0);
}

/** @param {{ id: number, command: keyof typeof commands, args: never }} message */
async function obey({ id, command, args }) {
  try {
    send({ type: "done", id, value: await commands[command](args) });
  } catch (error) {
    send({ type: "failed", id, error: shapeOf(error) });
  }
}

process.on("disconnect", quit);
process.on("message", (message) => void obey(/** @type {never} */ (message)));
process.on("unhandledRejection", (error) =>
  send({ type: "complaint", what: "unhandledRejection", error: shapeOf(error) }),
);
process.on("uncaughtException", (error) =>
  send({ type: "complaint", what: "uncaughtException", error: shapeOf(error) }),
);
process.on("warning", (warning) => {
  // Node.js addresses deprecations to our dependencies.
  if (/Deprecation|Experimental/.test(warning.name)) return;
  send({ type: "complaint", what: "warning", error: shapeOf(warning) });
});
send({ type: "ready" });
