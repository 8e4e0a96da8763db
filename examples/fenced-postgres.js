// @ts-check
// Fenced writes to PostgreSQL: a holder that was paused while another one acquired its lock cannot overwrite the new
// holder's data, because each row stores the highest fencing token that wrote it, and the turn of that hold.
//   CREATE TABLE rate (currency text PRIMARY KEY, value numeric, fence bigint NOT NULL DEFAULT 0, turn bigint NOT NULL DEFAULT 1);
//   INSERT INTO rate VALUES ('EUR');
import { connect, Mutex } from "leasehold";
import pg from "pg";

const {
  ETCD_HOSTS = "http://127.0.0.1:2379",
  TTL_SECONDS = "15",
  DATABASE_URL,
  SOURCE_URL = "",
} = process.env;
/**
 * Only a sticky lock has several turns of one fence. Where no lock is sticky, the fence alone is enough:
 * UPDATE rate SET value = $2, fence = $1 WHERE currency = $3 AND fence <= $1
 */
const UPDATE = `
  UPDATE rate SET value = $3, fence = $1, turn = $2 WHERE currency = $4 AND (fence, turn) <= ($1, $2)`;

const cluster = connect({ hosts: ETCD_HOSTS.split(","), session: { ttlSeconds: Number(TTL_SECONDS) } });
const db = new pg.Pool({ connectionString: DATABASE_URL });
try {
  await new Mutex(cluster, "rates/EUR").withLock(async (lock) => {
    const source = await fetch(SOURCE_URL);
    const value = await source.text();
    // A check made here does not help a process that is paused right after it. The comparison in the statement does.
    const { rowCount } = await db.query(UPDATE, [lock.fence, lock.turn, value, "EUR"]);
    if (rowCount === 0) throw new Error(`EUR not written: fence ${lock.fence}, turn ${lock.turn} is stale`);
    console.log(`EUR is ${value}, written under fence ${lock.fence}, turn ${lock.turn}`);
  });
} finally {
  await Promise.all([db.end(), cluster.close()]);
}
