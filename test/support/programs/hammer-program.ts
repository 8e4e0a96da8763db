// A process that takes one sticky lock again and again, with pauses in which its session keeps the key, and records each step as in a run
// of the lab. Argument: a JSON HammerTask. Messages to it: a lock's name = hammer that one from now on; "close" = close everything and end.
// It says "kept NAME" when the key of that lock has stayed for the first time.
import { on } from "node:events";
import { openSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { now, record } from "../../lab/runner/journal.js";
import { load } from "../../lab/runner/leasehold.js";

export interface HammerTask {
  readonly p: string;
  readonly hosts: readonly string[];
  readonly ttlSeconds: number;
  readonly journal: string;
  /** So many holds come one after the other before a pause. */
  readonly burst: number;
  readonly pauseMs: number;
}

const task = JSON.parse(process.argv[2] ?? "") as HammerTask;
const fd = openSync(task.journal, "a");
process.once("disconnect", () => process.exit(70));
const messages = on(process, "message") as AsyncIterableIterator<[string]>;
const { connect, Mutex, Session } = await load(undefined);
const cluster = connect({ hosts: task.hosts });
const session = await Session.open(cluster, { ttlSeconds: task.ttlSeconds, owner: task.p });
let ids = 0;
let target: string | undefined;
let hammering = Promise.resolve();

process.send?.("ready");
for await (const [message] of messages) {
  if (message === "close") break;
  target = message;
  hammering = hammering.then(() => hammer(message));
}
target = undefined;
await hammering;
await session.close();
await cluster.close();
process.removeAllListeners("disconnect");
process.disconnect();

async function hammer(name: string): Promise<void> {
  const mutex = new Mutex(session, name, { sticky: true });
  let said = false;
  while (target === name) {
    let turns = 1;
    for (let n = 0; n < task.burst; n++) turns = await take(mutex, name);
    if (turns > 1 && !said) {
      said = true;
      process.send?.(`kept ${name}`);
    }
    await delay(task.pauseMs);
  }
}

/** Resolves with the turn of the hold. */
async function take(mutex: InstanceType<typeof Mutex>, lock: string): Promise<number> {
  const id = ids++;
  const note = (step: object): void => record(fd, { t: now(), p: task.p, lock, id, ...step });
  note({ k: "invoke", f: "acquire", owner: task.p });
  const hold = await mutex.lock();
  const { fence: token, turn, key, held } = hold;
  note({ k: "ok", f: "acquire", token, turn, key, held });
  await new Promise(setImmediate);
  const t = now();
  note({ t, k: "claim", token, held: hold.held });
  note({ k: "invoke", f: "release" });
  await hold.release();
  note({ k: "ok", f: "release" });
  return turn;
}
