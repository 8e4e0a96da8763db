// The worker thread of `connect({ renewal: "worker" })`: see threaded-keepalive.ts, which starts it.
import { workerData } from "node:worker_threads";
import { EtcdClient } from "../etcd/client.js";
import type { CallOptions, Member } from "../etcd/port.js";
import { failures, memberOf } from "../etcd/transport.js";
import { checkConnect } from "../base/options/connect.js";
import { type Clock, pause, systemClock } from "../base/util/clock.js";
import { LeaseRenewer } from "./lease-renewer.js";
import { CLOCKS_MS, originOf, type RenewalStart, trustingTls } from "./threaded-keepalive.js";
import { type RenewalOrder, type RenewalReach, SharedPulse } from "./shared-renewal.js";

const { reach, port, pulse, originMs, authorities, known, now } = workerData as RenewalStart;
let { credentials, auth } = now;
if (authorities) trustingTls().setDefaultCACertificates?.(authorities);

/** The monotonic clock of this thread, set by that of the other one: no order seems to arrive before it was sent. */
const aheadMs = originOf(systemClock) + CLOCKS_MS - originMs;
const clock: Clock = {
  ...systemClock,
  now: () => ({ monotonic: clock.monotonic(), suspend: systemClock.now().suspend }),
  monotonic: () => systemClock.monotonic() + aheadMs,
};

const options = checkConnect({
  ...reach,
  ...(credentials && { credentials: () => credentials }),
  ...(auth && { auth: () => auth }),
});
const context = { options, clock, failures };
const client = new EtcdClient(options, clock, (host, setting) => memberOf(host, setting, context));
const thread = new LeaseRenewer({
  client,
  clock,
  pulse: new SharedPulse(pulse),
  post: (news) => port.postMessage(news),
});

if (known) client.hosts.check(known.name, known);
find(now);

/** Beside those that this thread has found itself. */
function find({ hosts }: RenewalReach): void {
  if (hosts) client.hosts.replaceWith([...client.hosts.names, ...hosts]);
}

/**
 * Hosts that DNS names must be known before a stream is opened, and the transport must be loaded. An answer shows that the member in
 * use belongs to the cluster of the leases: another cluster would answer that it has no such lease.
 */
async function prepare(): Promise<void> {
  for (;;) {
    try {
      await client.call(ask, { what: "find the members" });
      return await client.loaded();
    } catch {
      thread.failed();
      await pause(clock, options.requestTimeoutMs);
    }
  }
}

const ask = (member: Member, limits: CallOptions): Promise<unknown> =>
  member.timeToLive(1n, { ...limits, withoutKeys: true });

const prepared = prepare();
port.on("message", (order: RenewalOrder) => {
  if (order.do === "reach") {
    ({ credentials, auth } = order);
    find(order);
  } else if (order.do === "end") process.exit();
  else void prepared.then(() => thread.take(order));
});
