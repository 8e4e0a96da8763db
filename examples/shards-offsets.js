// @ts-check
// Workers that share out the partitions of a source. Each partition has one worker, which keeps its offset, and what it computes, in
// PostgreSQL: one row for each partition, and the fence of its worker in it. A worker that was paused while its partition moved can't
// write the row any more. Start as many as you like; when one gets SIGTERM, its partitions move to the others at once.
//   CREATE TABLE partition (id int PRIMARY KEY, "offset" bigint NOT NULL DEFAULT 0, total numeric NOT NULL DEFAULT 0,
//     fence bigint NOT NULL DEFAULT 0);
//   INSERT INTO partition SELECT generate_series(0, 15);
import { once } from "node:events";
import { connect, shards, untilShutdown } from "leasehold";
import pg from "pg";

const {
  ETCD_HOSTS = "http://127.0.0.1:2379",
  TTL_SECONDS = "15",
  DATABASE_URL,
  SOURCE_URL = "",
  PARTITIONS = "16",
  // The name of the pod, or of the machine: a worker that restarts gets its own partitions back.
  WORKER_ID,
  // In all. Less than the time until SIGKILL: 30 s in Kubernetes, 90 s in systemd.
  DRAIN_MS = "20000",
} = process.env;

/** The first statement: from now on, no worker before this one writes the row, so the offset that it returns is the latest. */
const TAKE = `
  UPDATE partition SET fence = $1 WHERE id = $2 AND fence <= $1 RETURNING "offset"`;
/** The offset and what was computed from the record, in one statement: a record counts once. */
const WRITE = `
  UPDATE partition SET "offset" = "offset" + 1, total = total + $3 WHERE id = $2 AND fence = $1`;

const cluster = connect({ hosts: ETCD_HOSTS.split(",") });
const db = new pg.Pool({ connectionString: DATABASE_URL });
const count = Number(PARTITIONS);
const drainMs = Number(DRAIN_MS);
const group = { count, id: WORKER_ID, drainMs: drainMs / 2, ttlSeconds: Number(TTL_SECONDS) };

await untilShutdown(
  cluster,
  async (signal) => {
    const partitions = await shards(cluster, "partitions", { ...group, signal }, consume);
    console.log("joined");
    await once(signal, "abort");
    await partitions.close();
  },
  { drainMs },
);
await db.end();
console.log("stopped");

/**
 * Runs for each partition of this worker, until its signal aborts. If it throws before, it is run again, and after three times elsewhere.
 * @param {import("leasehold").Shard} partition
 */
async function consume({ id, fence, signal }) {
  const { rows } = await db.query(TAKE, [fence, id]);
  if (rows.length === 0) throw new Error(`partition ${id} not taken: fence ${fence} is stale`);
  let offset = Number(rows[0].offset);
  console.log(`partition ${id} from offset ${offset}, fence ${fence}`);
  while (!signal.aborted) {
    // The source answers when it has the record. A record whose processing has begun is finished: then the partition moves.
    const source = await fetch(`${SOURCE_URL}/${id}/${offset}`, { signal });
    const value = await source.text();
    const { rowCount } = await db.query(WRITE, [fence, id, value]);
    if (rowCount === 0) throw new Error(`partition ${id} not written: fence ${fence} is stale`);
    offset++;
  }
}
