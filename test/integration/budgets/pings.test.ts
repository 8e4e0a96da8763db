// Go's gRPC servers send a PING with a request, unless their last one is unanswered. Each costs the client a read, and its
// answer a write.
import net from "node:net";
import { onTestFinished, test, expect } from "vitest";
import { systemClock } from "../../../src/base/util/clock.js";
import { GrpcMember } from "../../../src/etcd/http2/member.js";
import { FRAME, FrameReader } from "../../../src/etcd/http2/frames.js";
import { checkConnect } from "../../../src/base/options/connect.js";
import { startEtcd } from "../../support/etcd/etcd.js";

const CALLS = 300;
/** How long the client keeps the answer to a PING. */
const LATE_MS = 100;

/** Forwards connections to `target`, and counts the frames that come back, by their type. */
async function counting(target: string) {
  const counts = new Map<number, number>();
  const server = net.createServer((client) => {
    const upstream = net.connect(Number(new URL(target).port), "127.0.0.1");
    const count = ({ type }: { type: number }) => void counts.set(type, (counts.get(type) ?? 0) + 1);
    const reader = new FrameReader({ frame: count }, 16_384);
    upstream.on("data", (chunk) => reader.read(chunk));
    for (const socket of [client, upstream]) socket.on("error", () => socket.destroy());
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void server.close());
  return { host: `http://127.0.0.1:${(server.address() as net.AddressInfo).port}`, counts };
}

test("etcd pings no connection more often than its answers leave, however many calls it has", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  const { host, counts } = await counting(etcd.endpoints[0]!);
  const options = checkConnect({ hosts: host, transport: "http2" });
  const setting = { token: () => undefined, pingMs: options.pingIntervalMs };
  const member = new GrpcMember(host, setting, { options, clock: systemClock });

  const start = performance.now();
  for (let n = 0; n < CALLS; n++) await member.range({ key: "pings" }, { timeoutMs: 10_000 });
  const elapsedMs = performance.now() - start;
  member.retire();

  expect(counts.get(FRAME.DATA)).toBe(CALLS);
  expect(counts.get(FRAME.PING) ?? 0).toBeLessThanOrEqual(1 + elapsedMs / LATE_MS);
});
