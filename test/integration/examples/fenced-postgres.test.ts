import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd.js";
import { buildPackage, Examples } from "../../support/examples.js";
import { fenceIn, overtaken } from "../../support/overtaken.js";
import { PgliteServer } from "../../support/pglite-server.js";

/** Set by test/support/postgres-tests.js: a real server. */
const POSTGRES_URL = process.env["LEASEHOLD_POSTGRES_URL"];
const TABLE = "CREATE TABLE rate (currency text PRIMARY KEY, value numeric, fence bigint NOT NULL DEFAULT 0)";

let etcd: EtcdCluster;
let pglite: PgliteServer | undefined;
let db: pg.Pool;
let url: string;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
  pglite = POSTGRES_URL === undefined ? await PgliteServer.start() : undefined;
  url = POSTGRES_URL ?? pglite!.url;
  db = new pg.Pool({ connectionString: url });
  await db.query(TABLE);
  await db.query("INSERT INTO rate VALUES ('EUR')");
}, 150_000);
afterAll(async () => {
  await db?.end();
  await pglite?.[Symbol.asyncDispose]();
  await etcd?.stop();
});

describe(`examples/fenced-postgres.js on ${POSTGRES_URL === undefined ? "PGlite" : "PostgreSQL"}`, () => {
  test("a holder that was paused for longer than its TTL cannot overwrite the row of the next one", async () => {
    await using examples = new Examples(etcd.endpoints);

    const { stale, next } = await overtaken(examples, "fenced-postgres.js", { DATABASE_URL: url });

    expect([next.code, next.stderr]).toEqual([0, ""]);
    expect(stale.code).toBe(1);
    expect(stale.stderr).toMatch(/EUR not written: fence \d+ is stale/);
    expect(fenceIn(stale.stderr)).toBeLessThan(fenceIn(next.stdout));
    const { rows } = await db.query("SELECT value, fence FROM rate WHERE currency = 'EUR'");
    expect(rows).toEqual([{ value: "1.25", fence: String(fenceIn(next.stdout)) }]);
  }, 60_000);
});
