import type { Ended, Examples } from "./examples.js";
import { Upstream } from "./upstream.js";

/**
 * Two processes run the example `file`, which asks `SOURCE_URL` for a value while it holds its lock and then writes it.
 * The first one is stopped (SIGSTOP) with its question on the way. The second one gets the lock when the lease of the
 * first has expired, and writes "next". Then the first goes on, and tries to write "stale".
 */
export async function overtaken(
  examples: Examples,
  file: string,
  env: NodeJS.ProcessEnv,
): Promise<{ readonly stale: Ended; readonly next: Ended }> {
  await using source = await Upstream.start();
  const settings = { env: { ...env, SOURCE_URL: source.url } };
  const paused = examples.start(file, settings);
  const before = await source.next();
  paused.signal("SIGSTOP");

  const other = examples.start(file, settings);
  (await source.next()).answer("1.25");
  const next = await other.ended;

  paused.signal("SIGCONT");
  before.answer("0.75");
  return { stale: await paused.ended, next };
}

/** The fencing token that an example says it wrote under, or was refused with. */
export function fenceIn(text: string): bigint {
  return BigInt(/fence (\d+)/.exec(text)?.[1] ?? 0);
}
