import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { startGrpcProxy, type GrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { startTcpProxy, type TcpProxy } from "../../support/proxies/tcp-proxy.js";
import { callFaults, type Called } from "../faults/calls.js";
import { lateAnswers, lateThenSilent, linkFaults, type Linked } from "../faults/links.js";
import { repeatFaults } from "../faults/repeats.js";
import { pauseEtcd, restartEtcd } from "../faults/members.js";
import { storeFaults } from "../faults/store.js";
import { userFaults, type Peopled } from "../faults/users.js";
import { workerFaults } from "../faults/workers.js";
import type { GroundOptions, Tier } from "../runner/ground.js";
import { etcdOptions, LinkedGround } from "./etcd-ground.js";

/** One member behind a proxy that recognizes single calls, behind one that forwards bytes. */
class BehindProxies extends LinkedGround implements Linked, Called, Peopled {
  readonly calls: readonly GrpcProxy[];

  constructor(etcd: EtcdCluster, link: TcpProxy, call: GrpcProxy) {
    super(etcd, [link]);
    this.calls = [call];
  }

  override async stop() {
    for (const proxy of this.calls) await proxy.stop();
    await super.stop();
  }
}

async function start(options: GroundOptions): Promise<BehindProxies> {
  const etcd = await startEtcd(etcdOptions(options));
  const calls = await startGrpcProxy({ port: etcd.member.clientPort });
  const link = await startTcpProxy({ port: calls.port });
  return new BehindProxies(etcd, link, calls).addUsers(options);
}

export const t1: Tier<BehindProxies> = {
  name: "t1",
  title: "one etcd behind proxies",
  faults: [
    ...workerFaults,
    ...linkFaults,
    lateThenSilent,
    lateAnswers,
    ...callFaults,
    ...repeatFaults,
    ...storeFaults,
    ...userFaults,
    pauseEtcd,
    restartEtcd,
  ],
  has: ["auth"],
  start,
};
