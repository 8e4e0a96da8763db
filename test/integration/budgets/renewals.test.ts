// What the renewals of many sessions cost: each write to the socket takes longer than all else that a renewal needs.
import { subscribe, unsubscribe } from "node:diagnostics_channel";
import { Socket } from "node:net";
import { expect, onTestFinished, test, vi } from "vitest";
import { connect, Session } from "../../../src/index.js";
import { FRAME, FrameReader } from "../../../src/etcd/http2/frames.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import { startEtcd } from "../../support/etcd/etcd.js";

const SESSIONS = 50;
const TTL_SECONDS = 3;
/** Sessions that are due within this time are renewed together. */
const TOGETHER_MS = (TTL_SECONDS * 1000) / 30;

/** The number of writes to sockets, from now on, that contain data. */
function dataWrites() {
  const writing = vi.spyOn(Socket.prototype, "write");
  onTestFinished(() => writing.mockRestore());
  const hasData = (bytes: Buffer) => {
    const types = new Set<number>();
    new FrameReader({ frame: ({ type }) => void types.add(type) }, 16_384).read(bytes);
    return types.has(FRAME.DATA);
  };
  return () => writing.mock.calls.filter(([bytes]) => hasData(bytes as Buffer)).length;
}

test("the sessions of a cluster that are due within a thirtieth of a TTL are renewed by one write", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const cluster = connect({ hosts: etcd.endpoints });
  onTestFinished(() => cluster.close());
  const start = performance.now();
  await Promise.all(
    Array.from({ length: SESSIONS }, () => Session.open(cluster, { ttlSeconds: TTL_SECONDS })),
  );
  const spanMs = performance.now() - start;
  const writes = dataWrites();

  const renewed = new Set<bigint>();
  await new Promise<void>((resolve) => {
    const listen = (message: unknown) => {
      renewed.add((message as { leaseId: bigint }).leaseId);
      if (renewed.size === SESSIONS) resolve();
    };
    subscribe(CHANNELS.renewed, listen);
    onTestFinished(() => void unsubscribe(CHANNELS.renewed, listen));
  });

  // The span may begin in one round, and end in another one.
  expect(writes()).toBeLessThanOrEqual(2 + Math.floor(spanMs / TOGETHER_MS));
});
