import { connect, Session } from "../../../src/index.js";
import type { EtcdCluster } from "../etcd/etcd.js";
import { startGrpcProxy } from "./grpc-proxy.js";
import { placesOf } from "../clients/server-view.js";

/** A session behind its own proxy, which can lose selected messages, and a rival with an undisturbed connection. */
export async function behindProxy({ member }: EtcdCluster, name: string, ttlSeconds: number) {
  const proxy = await startGrpcProxy({ port: member.clientPort });
  const cluster = connect({ hosts: proxy.endpoint });
  const rivals = connect({ hosts: member.endpoint });
  const session = await Session.open(cluster, { ttlSeconds });
  const stop = async () => {
    await Promise.all([cluster.close({ drainMs: 0 }), rivals.close({ drainMs: 0 })]);
    await proxy.stop();
  };
  return { proxy, session, rivals, places: () => placesOf(member, name), [Symbol.asyncDispose]: stop };
}
