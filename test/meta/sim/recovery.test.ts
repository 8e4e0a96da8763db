import { expect, it } from "vitest";
import { LOST_MS } from "../../../src/testing/memory/raft/cluster.js";
import { Kernel } from "../../sim/kernel/kernel.js";
import { whenServing } from "../../sim/run/recovery.js";

/** A cluster that does not serve until `serves` is set, and the times with which `whenServing()` has called. */
function watched() {
  const kernel = new Kernel("recovery");
  const cluster = { serves: false };
  const times: number[] = [];
  const end = whenServing(kernel, cluster, (since) => times.push(since));
  return { kernel, cluster, times, end };
}

it("gives the time from which on the cluster has served, once no read can be lost any more", async () => {
  const { kernel, cluster, times, end } = watched();
  kernel.after(350, () => (cluster.serves = true));
  await kernel.elapse(350 + 2 * LOST_MS - 100);
  expect(times).toEqual([]);
  await kernel.elapse(200);
  expect(times).toEqual([300]);
  await kernel.elapse(10_000);
  end();
  expect(times).toEqual([300]);
});

it("begins anew when the cluster stops serving", async () => {
  const { kernel, cluster, times } = watched();
  cluster.serves = true;
  kernel.after(450, () => (cluster.serves = false));
  kernel.after(950, () => (cluster.serves = true));
  await kernel.elapse(10_000);
  expect(times).toEqual([900]);
});
