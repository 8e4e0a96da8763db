// A process that enlists as a counter, or enters a double barrier, and then does nothing until it is killed. Argument: a JSON RendezvousTask.
import { load } from "../../lab/runner/leasehold.js";

export interface RendezvousTask {
  readonly hosts: readonly string[];
  readonly owner: string;
  readonly latch: { readonly name: string; readonly count: number };
  readonly barrier: { readonly name: string; readonly members: number };
}

const { hosts, owner, latch, barrier } = JSON.parse(process.argv[2] ?? "") as RendezvousTask;
const { connect, CountDownLatch, DoubleBarrier } = await load(undefined);
process.once("disconnect", () => process.exit(70));
const cluster = connect({ hosts, session: { ttlSeconds: 2, owner } });
await new CountDownLatch(cluster, latch.name, latch.count).enlist();
process.send?.("enlisted");
await new DoubleBarrier(cluster, barrier.name, barrier.members).enter();
process.send?.("inside");
