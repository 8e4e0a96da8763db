// Many callers of one key, each with a session of its own, as so many processes. Argument: a JSON OnceTask. It says a line for each step
// of the work, and one for what each caller was told.
import { load } from "../../lab/runner/leasehold.js";

export interface OnceTask {
  readonly hosts: readonly string[];
  readonly name: string;
  readonly key: string;
  readonly callers: number;
  readonly ttlSeconds: number;
}

const task = JSON.parse(process.argv[2] ?? "") as OnceTask;
const { connect, once } = await load(undefined);
process.once("disconnect", () => process.exit(70));
const say = (word: object): void => void process.send?.(word);
const clusters = Array.from({ length: task.callers }, () =>
  connect({ hosts: task.hosts, session: { ttlSeconds: task.ttlSeconds } }),
);

/** So that it can be killed at each step. */
async function work(): Promise<string> {
  say({ step: "begun" });
  await told("work");
  say({ step: "worked" });
  await told("end");
  return `by ${process.pid}`;
}

const told = (word: string): Promise<void> =>
  new Promise((resolve) => {
    const heard = (message: unknown): void => {
      if (message !== word) return;
      process.off("message", heard);
      resolve();
    };
    process.on("message", heard);
  });

say({ step: "ready" });
await told("go");
const options = { result: "keep", ifRunning: "wait", keep: { ms: 60_000 } } as const;
await Promise.all(
  clusters.map(async (cluster) => {
    const reply = await once(cluster, task.name, task.key, work, options);
    say({ step: "told", status: reply.status, result: reply.status === "done" ? reply.result : undefined });
  }),
);
await Promise.all(clusters.map((cluster) => cluster.close({ drainMs: 0 })));
process.removeAllListeners("disconnect");
process.disconnect();
