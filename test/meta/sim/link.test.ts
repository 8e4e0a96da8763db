import { describe, expect, it } from "vitest";
import type { ServerStream, SimServer } from "../../../src/testing/memory/protocol.js";
import { Kernel } from "../../sim/kernel/kernel.js";
import { CALM } from "../../../src/testing/memory/network/link.js";
import { SimNode } from "../../sim/node/sim-node.js";
import { servicesOf } from "../../../src/lock/session/cluster.js";

const stream = { send: () => {}, close: () => {} } satisfies ServerStream<unknown>;

/** A node and a member that counts what it executes. */
function setUp(seed = "node") {
  const kernel = new Kernel(seed);
  const executed: string[] = [];
  const server: SimServer = {
    host: "http://m:2379",
    call: ({ kind }, reply) => {
      executed.push(kind);
      const header = { clusterId: "1", memberId: "1", revision: 1n, raftTerm: 2n };
      reply({ answer: { header, leaseId: 7n, ttlSeconds: 1 } });
    },
    keepalive: () => stream,
    watch: () => stream,
  };
  const node = new SimNode({ name: "n", scheduler: kernel, random: kernel.random, servers: [server] });
  const options = { timeoutMs: 1000 };
  const call = () => servicesOf(node.cluster).client.pool.current.timeToLive(7n, options);
  return { kernel, node, link: node.links[0]!, executed, call };
}

const outcome = (call: Promise<unknown>) =>
  call.then(
    () => "answered",
    (error: unknown) => ({ ...(error as object), message: (error as Error).message }),
  );

describe("a call over a link", () => {
  it("is executed and stays unanswered, in doubt, when its answer is lost", async () => {
    const { kernel, link, executed, call } = setUp();
    link.profile = { ...CALM, loseAnswer: 1 };
    const result = outcome(call());
    await kernel.elapse(3000);
    expect(await result).toMatchObject({ message: "no answer within 1000 ms", inDoubt: true });
    expect(executed).toEqual(["timeToLive"]);
  });

  it("fails at once and unsent on a link that is cut", async () => {
    const { kernel, link, executed, call } = setUp();
    link.set("cut");
    const result = outcome(call());
    await kernel.elapse(10);
    expect(await result).toMatchObject({ message: "connect ECONNREFUSED", inDoubt: false });
    expect(executed).toEqual([]);
  });

  it("is executed after its caller gave up, when a black hole ends", async () => {
    const { kernel, link, executed, call } = setUp();
    void outcome(call());
    await kernel.elapse(100);
    link.set("black hole");
    const result = outcome(call());
    await kernel.elapse(1500);
    expect(await result).toMatchObject({ inDoubt: true });
    expect(executed).toHaveLength(1);
    link.set("up");
    await kernel.elapse(100);
    expect(executed).toHaveLength(2);
  });

  it("may be executed after its process was killed, which receives nothing more", async () => {
    const { kernel, node, executed, call } = setUp();
    void outcome(call());
    await kernel.elapse(100);
    let settled = false;
    void outcome(call()).then(() => (settled = true));
    node.kill();
    await kernel.elapse(3000);
    expect([executed.length, settled, node.clock.timers]).toEqual([2, false, 0]);
    node.restart();
    const again = outcome(call());
    await kernel.elapse(100);
    expect(await again).toBe("answered");
  });
});
