// One process of a crowd: many simultaneous waiters on one name, with each step recorded as in a run of the lab.
// Argument: a JSON CrowdTask. Messages: "abort" = give up every n-th call; "close" = close everything and end.
import { openSync } from "node:fs";
import { on } from "node:events";
import type { Lock } from "../../../src/index.js";
import { describe } from "../../lab/runner/hold-log.js";
import { now, record } from "../../lab/runner/journal.js";
import { load } from "../../lab/runner/leasehold.js";

export interface CrowdTask {
  readonly p: string;
  readonly hosts: readonly string[];
  readonly name: string;
  readonly calls: number;
  readonly abortEvery: number;
  readonly ttlSeconds: number;
  readonly journal: string;
}

const task = JSON.parse(process.argv[2] ?? "") as CrowdTask;
const { p, name: lock, calls, abortEvery, ttlSeconds } = task;
const fd = openSync(task.journal, "a");
const note = (step: object) => record(fd, { t: now(), p, lock, ...step });
process.once("disconnect", () => process.exit(70));
/** Two of them may come at once. */
const messages = on(process, "message") as AsyncIterableIterator<[unknown]>;

const { connect, Mutex, Session } = await load(undefined);
const cluster = connect({ hosts: task.hosts });
const session = await Session.open(cluster, { ttlSeconds, owner: p });
const mutex = new Mutex(session, lock);

const callers = Array.from({ length: calls }, (_, id) => wait(id));
process.send?.("waiting");
await told("abort");
for (const { id, giveUp } of callers) if (id % abortEvery === 0) giveUp();
await Promise.all(callers.map(({ ended }) => ended));
process.send?.("drained");
await told("close");
await session.close();
await cluster.close();
process.removeAllListeners("disconnect");
process.disconnect();

function wait(id: number) {
  const controller = new AbortController();
  note({ k: "invoke", f: "acquire", id, owner: p });
  const ended = mutex.lock({ signal: controller.signal }).then(
    (hold) => use(id, hold),
    (error: unknown) => note({ k: "fail", f: "acquire", id, err: describe(error) }),
  );
  return { id, ended, giveUp: () => controller.abort() };
}

async function use(id: number, hold: Lock): Promise<void> {
  const token = hold.fence;
  const t = now();
  note({ t, k: "ok", f: "acquire", id, token, key: hold.key, held: hold.held });
  await new Promise(setImmediate);
  const before = now();
  note({ t: before, k: "claim", id, token, held: hold.held });
  note({ k: "invoke", f: "release", id });
  await hold.release();
  note({ k: "ok", f: "release", id });
}

async function told(what: string): Promise<void> {
  for (;;) {
    const { value } = (await messages.next()) as IteratorYieldResult<[unknown]>;
    if (value[0] === what) return;
  }
}
