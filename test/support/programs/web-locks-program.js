// `node web-locks-program.js HOSTS TTL NAME`: a process that holds a lock until the test ends or kills it.
import { ClusterLockManager, connect } from "leasehold";

const [hosts = "", ttlSeconds, name = ""] = process.argv.slice(2);
const cluster = connect({ hosts: hosts.split(","), session: { ttlSeconds: Number(ttlSeconds) } });
const told = (/** @type {object} */ message) => process.send?.(message);
process.on("disconnect", () => process.exit());

await new ClusterLockManager(cluster)
  .request(name, (lock) => {
    const ended = new Promise((end) => process.once("message", end));
    lock?.signal.addEventListener("abort", () => told({ aborted: lock.signal.reason.code }));
    told({ holds: lock?.key });
    return ended;
  })
  .then(
    () => told({ settled: "served" }),
    (error) => told({ settled: error.name, cause: error.cause?.code }),
  );
