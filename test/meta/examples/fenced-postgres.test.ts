import { readFileSync } from "node:fs";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, type Lock, Mutex } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { fenceIn, overtaken } from "../../support/fixtures/overtaken.js";
import { PgliteServer } from "../../support/servers/pglite-server.js";
import { type PostgresServer, startPostgres } from "../../support/servers/postgres.js";

const SOURCE = readFileSync(new URL("../../../examples/fenced-postgres.js", import.meta.url), "utf8");
/** The statements of the example: the one that it runs, and the one of its comment. */
const PAIR = /`\s*(UPDATE [^`]+)`/.exec(SOURCE)![1]!;
const ALONE = / \* (UPDATE .*)$/m.exec(SOURCE)![1]!;

/** Set by `npm run test:all -- postgres`: the version of a real server. */
const POSTGRES = process.env["LEASEHOLD_POSTGRES"];
const TABLE =
  "CREATE TABLE rate (currency text PRIMARY KEY, value numeric, fence bigint NOT NULL DEFAULT 0, turn bigint NOT NULL DEFAULT 1)";

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
    expect(stale.stderr).toMatch(/EUR not written: fence \d+, turn 1 is stale/);
    expect(fenceIn(stale.stderr)).toBeLessThan(fenceIn(next.stdout));
    const { rows } = await db.query("SELECT value, fence, turn FROM rate WHERE currency = 'EUR'");
    expect(rows).toEqual([{ value: "1.25", fence: String(fenceIn(next.stdout)), turn: "1" }]);
  }, 60_000);

  const rowOf = async (currency: string) => {
    const { rows } = await db.query<Record<string, string>>(
      "SELECT value, fence, turn FROM rate WHERE currency = $1",
      [currency],
    );
    return rows[0]!;
  };

  test("its statement refuses a lower fence, and a lower turn of the same fence", async () => {
    const fence = 2n ** 53n + 1n;
    await db.query("INSERT INTO rate VALUES ('USD')");
    const write = async (of: bigint, turn: number, value: number) =>
      (await db.query(PAIR, [of, turn, value, "USD"])).rowCount;

    expect(await write(fence, 2, 1)).toBe(1);
    expect([await write(fence - 1n, 3, 2), await write(fence, 1, 3)]).toEqual([0, 0]);
    expect(await rowOf("USD")).toEqual({ value: "1", fence: String(fence), turn: "2" });

    expect([await write(fence, 2, 4), await write(fence, Number.MAX_SAFE_INTEGER, 5)]).toEqual([1, 1]);
    expect(await write(fence + 1n, 1, 6)).toBe(1);
    expect(await rowOf("USD")).toEqual({ value: "6", fence: String(fence + 1n), turn: "1" });
  });

  test("its statement without turns does the same for locks that are not sticky, whose turn is 1", async () => {
    await db.query("INSERT INTO rate VALUES ('CHF'), ('NOK')");
    await using cluster = connect({ hosts: etcd.endpoints });
    const locked = () => new Mutex(cluster, "rates/plain").lock();
    const locks: Lock[] = [];
    for (let n = 0; n < 3; n++) locks.push(await locked().then(async (lock) => (await lock.release(), lock)));
    const written = async (lock: Lock, value: number) => [
      (await db.query(ALONE, [lock.fence, value, "CHF"])).rowCount,
      (await db.query(PAIR, [lock.fence, lock.turn, value, "NOK"])).rowCount,
    ];

    const order = [1, 0, 1, 2, 0, 1];
    const results = [];
    for (const [value, n] of order.entries()) results.push(await written(locks[n]!, value));

    expect(locks.map(({ turn }) => turn)).toEqual([1, 1, 1]);
    expect(results).toEqual([1, 0, 1, 1, 0, 0].map((count) => [count, count]));
    expect(await rowOf("NOK")).toEqual(await rowOf("CHF"));
  });
});
