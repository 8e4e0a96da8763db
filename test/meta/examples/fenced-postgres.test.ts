import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { fenceIn, overtaken } from "../../support/fixtures/overtaken.js";
import { PgliteServer } from "../../support/servers/pglite-server.js";
import { type PostgresServer, startPostgres } from "../../support/servers/postgres.js";

/** Set by `npm run test:all -- postgres`: the version of a real server. */
const POSTGRES = process.env["LEASEHOLD_POSTGRES"];
const TABLE = "CREATE TABLE rate (currency text PRIMARY KEY, value numeric, fence bigint NOT NULL DEFAULT 0)";

let etcd: EtcdCluster;
let server: PgliteServer | PostgresServer;
let db: pg.Client;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
  server = await (POSTGRES === undefined ? PgliteServer.start() : startPostgres());
  db = new pg.Client({ connectionString: server.url });
  await db.connect();
  await db.query(TABLE);
  await db.query("INSERT INTO rate VALUES ('EUR')");
}, 150_000);
afterAll(async () => {
  await db?.end();
  await server?.[Symbol.asyncDispose]();
  await etcd?.stop();
});

describe(`examples/fenced-postgres.js on ${POSTGRES === undefined ? "PGlite" : `PostgreSQL ${POSTGRES}`}`, () => {
  test("a holder that was paused for longer than its TTL cannot overwrite the row of the next one", async () => {
    await using examples = new Examples(etcd.endpoints);

    const env = { DATABASE_URL: server.url };
    const { stale, next } = await overtaken(examples, "fenced-postgres.js", env);

    expect([next.code, next.stderr]).toEqual([0, ""]);
    expect(stale.code).toBe(1);
    expect(stale.stderr).toMatch(/EUR not written: fence \d+ is stale/);
    expect(fenceIn(stale.stderr)).toBeLessThan(fenceIn(next.stdout));
    const { rows } = await db.query("SELECT value, fence FROM rate WHERE currency = 'EUR'");
    expect(rows).toEqual([{ value: "1.25", fence: String(fenceIn(next.stdout)) }]);
  }, 60_000);
});
