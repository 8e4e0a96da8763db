// How long renewals took, with `renewal: "worker"`, is measured where they are answered: a stall of this thread is no part of it.
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../../src/index.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { RenewedMessage } from "../../../src/base/telemetry/messages.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Messages } from "../../support/fixtures/messages.js";

const TTL_SECONDS = 5;
const TTL_MS = TTL_SECONDS * 1000;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

test("renewals of a thread are not slow because their answers are read after a stall", async () => {
  const lines: string[] = [];
  const log = { warn: (line: string) => lines.push(line), error: (line: string) => lines.push(line) };
  await using cluster = connect({
    ...{ hosts: etcd.endpoints, session: { ttlSeconds: TTL_SECONDS }, log },
    ...{ renewal: "worker", maxStallMs: 60_000 },
  });
  await cluster.session();
  using told = new Messages<RenewedMessage>(CHANNELS.renewed, ({ hosts }) => hosts === cluster.hosts);
  // The thread runs.
  await expect.poll(() => told.all.length, { timeout: TTL_MS }).toBe(1);
  // Until shortly before the next one, so that the answer to the last one was unread for long.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0.95 * TTL_MS);
  await expect.poll(() => told.all.length).toBeGreaterThanOrEqual(3);

  expect(Math.max(...told.all.map(({ durationMs }) => durationMs))).toBeLessThan(TTL_MS / 6);
  expect(lines).toEqual([]);
});
