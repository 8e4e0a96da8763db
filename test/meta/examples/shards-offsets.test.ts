import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { PgliteServer } from "../../support/servers/pglite-server.js";
import { type PostgresServer, startPostgres } from "../../support/servers/postgres.js";

const SOURCE = readFileSync(new URL("../../../examples/shards-offsets.js", import.meta.url), "utf8");
const TABLE = SOURCE.match(/CREATE TABLE [^;]+/)![0].replaceAll("\n//", "");
const [TAKE, WRITE] = [...SOURCE.matchAll(/`\s*(UPDATE [^`]+)`/g)].map(([, statement = ""]) => statement) as [
  string,
  string,
];
/** Set by `npm run test:all -- postgres`: the version of a real server. */
const POSTGRES = process.env["LEASEHOLD_POSTGRES"];
const PARTITIONS = 4;
const ALL = [0, 1, 2, 3];
const PATIENCE = { timeout: 20_000 };

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
}, 150_000);
afterAll(async () => {
  await db?.end();
  await server?.[Symbol.asyncDispose]();
  await etcd?.stop();
});

/** What the workers read. Each record has the value 1. */
class Records implements AsyncDisposable {
  readonly #server = http.createServer(({ url = "" }, response) => {
    const [partition = 0, offset = 0] = url.split("/").slice(1).map(Number);
    this.#open.push({ partition, offset, response });
    this.#answer();
  });
  #open: { partition: number; offset: number; response: http.ServerResponse }[] = [];
  #length = 0;

  static async start(): Promise<Records> {
    const records = new Records();
    await once(records.#server.listen(0, "127.0.0.1"), "listening");
    return records;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** One more in each partition. Returns the sum of all. */
  publish(): number {
    this.#length++;
    this.#answer();
    return this.#length * PARTITIONS;
  }

  #answer(): void {
    const due = this.#open.filter(({ offset }) => offset < this.#length);
    this.#open = this.#open.filter((each) => !due.includes(each));
    for (const { response } of due) response.end("1");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await once(this.#server.close(), "close");
  }
}

describe(`examples/shards-offsets.js on ${POSTGRES === undefined ? "PGlite" : `PostgreSQL ${POSTGRES}`}`, () => {
  const rows = async () =>
    (await db.query<Record<string, string>>('SELECT id, "offset", total FROM partition ORDER BY id')).rows;
  const sum = async () => (await rows()).reduce((all, { total }) => all + Number(total), 0);

  test("each record counts once, while workers join, are paused for longer than their TTL, continue, and leave", async () => {
    await using records = await Records.start();
    await db.query(`INSERT INTO partition SELECT generate_series(0, ${PARTITIONS - 1})`);
    const env = { DATABASE_URL: server.url, SOURCE_URL: records.url, PARTITIONS: String(PARTITIONS) };
    await using examples = new Examples(etcd.endpoints, env);
    const start = (id: string) => examples.start("shards-offsets.js", { env: { WORKER_ID: id } });

    const a = start("a");
    for (const id of ALL) await a.says(`partition ${id} from offset 0`);
    await expect.poll(sum, PATIENCE).toBe(records.publish());

    const b = start("b");
    await b.says("from offset 1");
    await expect.poll(sum, PATIENCE).toBe(records.publish());

    a.signal("SIGSTOP");
    const expected = records.publish();
    // Those of the paused one, from the offset at which it was.
    await b.says("from offset 2");
    await expect.poll(sum, PATIENCE).toBe(expected);
    a.signal("SIGCONT");
    // It has joined again, and got partitions back.
    await a.says("from offset 3");
    await expect.poll(sum, PATIENCE).toBe(records.publish());

    a.signal("SIGTERM");
    const left = await a.ended;
    await expect.poll(sum, PATIENCE).toBe(records.publish());
    b.signal("SIGTERM");

    expect([left.code, (await b.ended).code]).toEqual([0, 0]);
    expect(left.stdout).toMatch(/stopped\n$/);
    expect(await rows()).toEqual(ALL.map((id) => ({ id, offset: "5", total: "5" })));
  }, 60_000);

  test("its statements refuse a worker with a lower fence than another one has taken the partition with", async () => {
    await db.query("INSERT INTO partition VALUES (99)");
    const taken = async (fence: bigint) => (await db.query<{ offset: string }>(TAKE, [fence, 99])).rows;
    const written = async (fence: bigint) => (await db.query(WRITE, [fence, 99, "7"])).rowCount;

    expect([await taken(5n), await written(5n), await taken(5n)]).toEqual([
      [{ offset: "0" }],
      1,
      [{ offset: "1" }],
    ]);
    expect(await taken(8n)).toEqual([{ offset: "1" }]);
    expect([await written(5n), await taken(5n), await written(9n)]).toEqual([0, [], 0]);
    expect([await written(8n), await taken(8n)]).toEqual([1, [{ offset: "2" }]]);
  });
});
