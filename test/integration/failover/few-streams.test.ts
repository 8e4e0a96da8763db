import { tracingChannel } from "node:diagnostics_channel";
import { expect, test } from "vitest";
import { connect, inspect } from "../../../src/index.js";
import type { CallMessage } from "../../../src/base/telemetry/messages.js";
import { startEtcd } from "../../support/etcd/etcd.js";

test("of many calls that are made at once on a new connection, none fails as the member allows fewer streams", async () => {
  const etcd = await startEtcd({ args: ["--max-concurrent-streams=4"] });
  const attempts: number[] = [];
  const noted = { asyncEnd: (message: object) => void attempts.push((message as CallMessage).attempts) };
  const calls = tracingChannel("leasehold.call");
  calls.subscribe(noted as never);
  const cluster = connect({ hosts: etcd.endpoints });
  try {
    await Promise.all(Array.from({ length: 60 }, (_, n) => inspect(cluster, `q${n}`)));
    expect(attempts).toEqual(Array.from({ length: 60 }, () => 1));
  } finally {
    calls.unsubscribe(noted as never);
    await cluster.close();
    await etcd.stop();
  }
});
