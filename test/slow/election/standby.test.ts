import { expect, test } from "vitest";
import { connect, lead, type Leadership, type LogRecord } from "../../../src/index.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";

const two = twoSessions(20);
/** After so long without a hold and a wait, the log says that the cluster was probably not closed. */
const IDLE_MS = 5000;

test("a candidate whose check hangs after a loss uses its cluster: no line says that it was not closed", async () => {
  const lines: string[] = [];
  const log = ({ message }: LogRecord) => void lines.push(message);
  await using cluster = connect({ hosts: two.etcd.endpoints, log });
  const stop = new AbortController();
  const ended = ({ signal }: Leadership) =>
    new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
  let checks = 0;
  const healthy = () => (checks++ === 0 ? false : new Promise<boolean>(() => {}));
  const limits = { everyMs: 50, withinMs: IDLE_MS + 1000 };
  const done = lead(cluster, "standby", ended, {
    healthy,
    ...limits,
    signal: stop.signal,
    ttlSeconds: 20,
  });
  const hasHung = () => lines.some((line) => line.includes("healthy has not passed"));
  await expect.poll(hasHung, { timeout: 5 * IDLE_MS }).toBe(true);
  stop.abort();
  await done;

  expect(lines.filter((line) => line.includes("call cluster.close()"))).toEqual([]);
});
