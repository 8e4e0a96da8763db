import { onTestFinished, test, expect } from "vitest";
import { systemClock } from "../../../src/base/util/clock.js";
import { GrpcMember } from "../../../src/etcd/http2/member.js";
import type { WatchAnswer } from "../../../src/etcd/port.js";
import { checkConnect } from "../../../src/base/options/connect.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const LIMIT = { timeoutMs: 10_000 };

test("a member that is left opens no connection for the reads of its open watch", async () => {
  const etcd = await startEtcd();
  onTestFinished(() => etcd.stop());
  await using proxy = await startTcpProxy({ port: etcd.member.clientPort });
  const options = checkConnect({ hosts: proxy.endpoint, transport: "http2" });
  const setting = { token: () => undefined, pingMs: options.pingIntervalMs };
  const member = new GrpcMember(proxy.endpoint, setting, { options, clock: systemClock });
  const answers: WatchAnswer[] = [];
  const stream = member.watch({ answer: (answer) => void answers.push(answer), ended: () => {} });
  stream.create({ watchId: 1, key: "left", startRevision: 0n, events: "PUT" });
  await expect.poll(() => answers).toHaveLength(1);

  member.retire();
  for (let n = 0; n < 5; n++) await member.range({ key: "left" }, LIMIT);

  expect(proxy.accepted).toBe(1);
  await etcd.etcdctl(["put", "left", "here"]);
  await expect.poll(() => answers).toHaveLength(2);
  stream.close();
  await expect.poll(() => proxy.connections).toHaveLength(0);
});
