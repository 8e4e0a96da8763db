import { describe, expect, test } from "vitest";
import { startEtcd } from "../../support/etcd/etcd.js";
import { Crew } from "../../support/programs/workers.js";

/** Code that runs in a worker before everything else, as soon as the worker records complaints. */
const preload = (code: string) => {
  const source = `const t = setInterval(() => process.listenerCount("warning") > 1 && (clearInterval(t), ${code}), 1)`;
  return { execArgv: ["--import", `data:text/javascript,${encodeURIComponent(source)}`] };
};

describe("a worker", { timeout: 30_000 }, () => {
  test.for([
    [
      "an unhandled rejection",
      "void Promise.reject(new Error('nobody cared'))",
      "unhandledRejection: nobody cared",
    ],
    ["a warning", "process.emitWarning('too many listeners')", "warning: too many listeners"],
  ] as const)("with %s fails the test that started it", async ([, code, complaint]) => {
    const crew = new Crew();
    const worker = await crew.start("worker", preload(code));
    await expect.poll(() => worker.complaints).toHaveLength(1);

    await expect(crew[Symbol.asyncDispose]()).rejects.toThrow(complaint);
    expect(worker.running).toBe(false);
  });

  test("whose cluster is closed ends by itself, though it locked, waited, aborted and lost", async () => {
    await using etcd = await startEtcd();
    await using crew = new Crew();
    const worker = await crew.start("worker");
    await worker.connect({ hosts: etcd.endpoints });
    await worker.session("mine", { ttlSeconds: 5 });
    const lost = await worker.lock("lost", { as: "lost" });
    await worker.lock("held", { as: "held", source: "mine" });
    const waiting = worker.lock("held", { as: "waiting" });
    waiting.catch(() => {});

    await etcd.etcdctl(["del", lost.key]);
    await worker.ended("lost");
    await worker.abort("waiting");
    await expect(waiting).rejects.toThrow("aborted by the test");
    await worker.release("held");
    await worker.close("cluster");
    const { code, signal } = await worker.leave();

    expect({ code, signal }).toEqual({ code: 0, signal: null });
  });
});
