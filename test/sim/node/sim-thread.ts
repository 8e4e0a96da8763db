import type { EtcdClient } from "../../../src/etcd/client.js";
import type { Scheduler } from "../../../src/testing/memory/event-queue.js";
import { checkConnect } from "../../../src/base/options/connect.js";
import type { LeaseRenewer as Thread } from "../../../src/alive/lease-renewer.js";
import type { StartThread } from "../../../src/alive/threaded-keepalive.js";
import type { RenewalNews, RenewalOrder } from "../../../src/alive/shared-renewal.js";
import { Random } from "../../../src/testing/memory/random.js";
import type { NodeClock } from "./node-clock.js";
import type { NewSimMember } from "./sim-node.js";

export interface ThreadSetting {
  readonly EtcdClient: typeof EtcdClient;
  readonly LeaseRenewer: typeof Thread;
  /** The options of `connect`. */
  readonly given: object;
  readonly clock: NodeClock;
  readonly scheduler: Scheduler;
  readonly membersOf: (clock: NodeClock) => NewSimMember;
}

/** Until a worker thread has begun. */
const START_MS = [10, 60] as const;
/** Until a message to another thread has arrived. */
const POST_MS = [0.01, 1] as const;

/** A worker thread of a simulated process, which renews its leases. */
export function simThread(setting: ThreadSetting): StartThread {
  const { clock: main, scheduler, membersOf } = setting;
  let threads = 0;
  return ({ pulse, handlers }) => {
    const clock = main.thread(`thread ${threads++}`);
    const random = new Random(`messages ${clock.random()}`);
    const options = checkConnect({ ...setting.given, renewal: "main", maxStallMs: undefined });
    const newMember = membersOf(clock);
    const client = new setting.EtcdClient(options, clock, (host, member) =>
      newMember(host, member, { options }),
    );
    const news: RenewalNews[] = [];
    const orders: RenewalOrder[] = [];
    let isOver = false;
    const post = (each: RenewalNews): void => {
      news.push(each);
      scheduler.after(random.between(...POST_MS), () => main.deliver(() => !isOver && read()));
    };
    const read = (): void => {
      const next = news.shift();
      if (next) handlers.news(next);
    };
    const thread = new setting.LeaseRenewer({ client, clock, pulse, post });
    const begins = scheduler.now + random.between(...START_MS);
    const take = (): void => {
      const order = orders.shift();
      if (order && order.do !== "end" && order.do !== "reach") thread.take(order);
    };
    return {
      post(order) {
        orders.push(structuredClone(order));
        const at = Math.max(begins, scheduler.now + random.between(...POST_MS));
        scheduler.after(at - scheduler.now, () => clock.deliver(take));
      },
      hear: () => {
        while (news.length > 0) read();
      },
      terminate() {
        isOver = true;
        client.close();
        clock.kill();
      },
    };
  };
}
