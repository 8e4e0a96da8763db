// A service under PM2: takes the lock NAME and keeps it. If STUBBORN is set, it does not end by SIGINT.
import { connect, Mutex } from "leasehold";

const { ETCD: hosts, NAME, STUBBORN, NODE_APP_INSTANCE: instance } = process.env;
if (STUBBORN) process.on("SIGINT", () => {});
const cluster = connect({ hosts, guardian: true, renewal: "worker", session: { ttlSeconds: 60 } });
await new Mutex(cluster, `${NAME}/${instance}`).lock();
setInterval(() => {}, 60_000);
