// The lines of a call that waits: who holds what it waits for, how many are ahead, and which attempts failed.
import { type Cluster, isLeaseholdError, type QueueState, watchQueue } from "../../../index.js";
import { heldText, permitsText } from "../../../contender.js";
import type { RejoinMessage } from "../../../base/telemetry/index.js";
import { pause, systemClock } from "../../../base/util/clock.js";
import { contenderJson, whoText } from "../io.js";
import type { WaitingJson } from "../json-types.js";
import { type Reporter, Retries } from "./settings.js";

/** A person reads a status that changes in place; a log is not to be filled. */
const [UPDATE_PAUSE_MS, LINE_PAUSE_MS] = [100, 2000];

/** A free lock is granted before this, so its queue is not watched. */
const FIRST_PAUSE_MS = 300;

/** What a call waits for. */
interface Awaited {
  /** Of the lock. */
  readonly name: string;
  /** The slot that the call runs: it may wait for the end of another run without a place in the queue. */
  readonly run?: string | undefined;
}

interface Waiting<T> {
  readonly reporter: Reporter;
  readonly call: (over: () => Promise<void>) => Promise<T>;
}

/** Reports the holder until `call` settles, or calls `over`. */
export async function whileReporting<T>(
  cluster: Cluster,
  awaited: Awaited,
  { reporter, call }: Waiting<T>,
): Promise<T> {
  const over = new AbortController();
  const retries = new Retries(reporter, awaited.name);
  // The program makes one call only, so each message is about that one.
  const rejoins = (message: unknown): void => {
    const { error, delayMs } = message as RejoinMessage;
    if (isLeaseholdError(error)) retries.failed(error, delayMs);
  };
  const { subscribe, unsubscribe } = process.getBuiltinModule("node:diagnostics_channel");
  subscribe("leasehold.rejoin", rejoins);
  const reported = reportWaiting(cluster, awaited, { reporter, signal: over.signal });
  const end = async (): Promise<void> => {
    unsubscribe("leasehold.rejoin", rejoins);
    over.abort();
    await reported;
    reporter.clear();
  };
  try {
    return await call(end);
  } finally {
    await end();
  }
}

/** Reports the holder and how many are ahead, whenever that changes, until `signal` aborts. */
async function reportWaiting(
  cluster: Cluster,
  awaited: Awaited,
  { reporter, signal }: { readonly reporter: Reporter; readonly signal: AbortSignal },
): Promise<void> {
  let last = "";
  try {
    await pause(systemClock, FIRST_PAUSE_MS, signal);
    for await (const state of watchQueue(cluster, awaited.name, { limit: 1000, signal })) {
      // The session is open before the entry is in the queue; the answer to the join may come after the state that shows it.
      const own = cluster.snapshot().sessions.map(({ leaseId }) => leaseId);
      const status = described(awaited, state, own);
      if (status && status.text !== last) reporter.status(status.text, status.json);
      last = status?.text ?? last;
      // The loop gets only the latest of the states in the meantime.
      if (status) await pause(systemClock, reporter.updates ? UPDATE_PAUSE_MS : LINE_PAUSE_MS, signal);
    }
  } catch {
    // The acquisition reports what is wrong with etcd, and the abort ends this loop.
    return;
  }
}

/** By whom it is held, and how much of a weighted semaphore; undefined if nobody holds it. */
export function holdersText({ holders, total }: Pick<QueueState, "holders" | "total">): string | undefined {
  const [holder] = holders;
  if (!holder) return undefined;
  const others = total.holders > 1 ? ` and ${total.holders - 1} more` : "";
  const permits = permitsText(holders, total.holders);
  return `${heldText(holder, whoText(holder))}${others}${permits === undefined ? "" : ` (${permits})`}`;
}

function described(
  { name, run }: Awaited,
  state: QueueState,
  own: readonly bigint[],
): { readonly text: string; readonly json: WaitingJson } | undefined {
  const { holders, waiters, total } = state;
  const rank = waiters.findIndex(({ leaseId }) => own.includes(leaseId));
  const [holder] = holders;
  const isQueued = rank !== -1;
  // Before the first state that has our own entry, and after the grant, there is nothing to say.
  if (!holder || (!isQueued && (run === undefined || own.includes(holder.leaseId)))) return undefined;
  // As LockTimeoutError and the log count: every entry before this one, the holders included.
  const ahead = total.holders + (isQueued ? rank : 0);
  const held = holdersText(state);
  return {
    text: isQueued
      ? `waiting for ${name}: ${held}, ${ahead} ahead in the queue`
      : `waiting for the run of ${run}: ${held}`,
    json: { event: "waiting", name, holder: contenderJson(holder), total, ahead },
  };
}
