// leasehold ls and show: what they print of the queues of all clients, and of keys that no client has put well.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Election, Mutex, RwLock, Semaphore } from "../../../src/index.js";
import { EtcdctlLock } from "../../support/clients/etcdctl-lock.js";
import { grantLease, putKeys } from "../../support/clients/many-keys.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { CLI, runCli } from "../../support/programs/cli.js";
import { owned } from "../../support/programs/owned.js";

const two = twoSessions(30);
const endpoints = () => two.etcd.endpoints.join(",");
const run = (...words: string[]) => runCli(words, { endpoints: endpoints() });
/** So wide that it has room for every column. */
const onTerminal = (...words: string[]) =>
  runCli(words, { endpoints: endpoints(), terminal: true, before: "stty cols 5000" });
const objects = (stdout: string) =>
  stdout
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Record<string, unknown>);
/** The cells of each line of a table. */
const cells = (stdout: string) =>
  stdout
    .split(/\r?\n/)
    .slice(0, -1)
    .map((line) => line.split(/ {2,}/));

const CONTROL = /[\p{Cc}\p{Cf}\p{Cs}]/u;
const isSafe = (output: string) => !CONTROL.test(output.replaceAll(/\r?\n/g, ""));

describe("leasehold ls", () => {
  test("has a line for each lock, with its kind, its holder's owner and the number of its waiters", async () => {
    const mutex = await new Mutex(two.holder, "ls/kinds/m").lock();
    const waiting = new Mutex(two.session, "ls/kinds/m").lock();
    const read = await new RwLock(two.holder, "ls/kinds/rw").readLock();
    const permit = await new Semaphore(two.holder, "ls/kinds/s", 4).acquire();
    const leadership = await new Election(two.holder, "ls/kinds/e").campaign("x");
    await two.queued("ls/kinds/m", 2);

    const [plain, json, limited] = await Promise.all([
      run("ls", "ls/kinds/"),
      run("ls", "ls/kinds/", "--json"),
      run("ls", "ls/kinds/", "--json", "--limit", "2"),
    ]);
    const terminal = await onTerminal("ls", "ls/kinds/");

    const age = expect.stringMatching(/^\d+ (ms|s)$/) as string;
    const table = [
      ["NAME", "KIND", "HOLDER", "JOINED", "WAITERS"],
      ["ls/kinds/e", "election", "x", "-", "0"],
      ["ls/kinds/m", "mutex", "the holder", age, "1"],
      ["ls/kinds/rw", "rwlock", "the holder", age, "0"],
      ["ls/kinds/s", "semaphore", "the holder", age, "0"],
    ];
    expect([plain.code, plain.stderr, cells(plain.stdout)]).toEqual([0, "", table]);
    expect([terminal.code, cells(terminal.stdout)]).toEqual([0, table]);
    const locks = objects(json.stdout);
    expect(locks).toMatchObject([
      { name: "ls/kinds/e", kind: "election" },
      {
        name: "ls/kinds/m",
        total: { waiters: 1 },
        holder: { owner: "the holder", revision: mutex.fence.toString() },
      },
      { name: "ls/kinds/rw" },
      { name: "ls/kinds/s" },
    ]);
    expect(objects(limited.stdout).map(({ name }) => name)).toEqual(["ls/kinds/e", "ls/kinds/m"]);
    await Promise.all([mutex, read, permit].map((hold) => hold.release()));
    await Promise.all([(await waiting).release(), leadership.resign()]);
  });

  test("prints nothing and ends with 0 if there are none", async () => {
    expect(await run("ls", "ls/none/")).toMatchObject({ code: 0, stdout: "", stderr: "" });
  });
});

describe("keys of hostile clients", () => {
  const names = [
    "hostile/a\u001b[2J\u001b[31mred",
    "hostile/b\nc  mutex  you",
    "hostile/\u202eevil",
    "hostile/日本",
  ];

  beforeAll(async () => {
    const { member } = two.etcd;
    const entry = { owner: "\u001b]0;title\u0007\n", since: "+275760-09-13T00:00:00.000Z", id: "x" };
    await putKeys(
      member,
      names.map((name) => `${name}/6a1f`),
      { value: JSON.stringify(entry) },
    );
    await putKeys(member, ["hostile/large/6a1f"], { value: "\u001b[2J".repeat(262_144) });
    await putKeys(member, ["hostile/large/deep/er/6a1f", "hostile/large//junk", "hostile//junk", "hostile/"]);
    const binary = Buffer.concat([Buffer.from("hostile/large/"), Buffer.of(0xff, 0x1b, 0)]);
    await member.gateway("/v3/kv/put", { key: binary.toString("base64") });
  });

  test("reach a terminal escaped, one line for each lock, and JSON as they are", async () => {
    const [plain, terminal, json] = await Promise.all([
      run("ls", "hostile/"),
      onTerminal("ls", "hostile/"),
      run("ls", "hostile/", "--json"),
    ]);

    expect([plain.code, terminal.code, json.code]).toEqual([0, 0, 0]);
    expect(isSafe(plain.stdout)).toBe(true);
    expect(isSafe(terminal.stdout)).toBe(true);
    expect(terminal.stdout.replaceAll("\r\n", "\n")).toBe(plain.stdout);
    expect(plain.stdout).toContain("hostile/a\\u001b[2J\\u001b[31mred");
    const listed = objects(json.stdout).map(({ name }) => name as string);
    expect(listed).toEqual(expect.arrayContaining([...names, "hostile/large", "hostile/large/deep/er"]));
    expect(cells(plain.stdout)).toHaveLength(1 + listed.length);
  });

  test("are shown in their queue with their keys, those that are no text with U+FFFD", async () => {
    const [plain, json] = await Promise.all([
      run("show", "hostile/large"),
      run("show", "hostile/large", "--json"),
    ]);

    expect([plain.code, json.code]).toEqual([0, 0]);
    expect(isSafe(plain.stdout)).toBe(true);
    expect(plain.stdout).toMatch(/^hostile\/large {2}unknown {2}1 holding, 3 waiting\n/);
    expect(plain.stdout).toContain("hostile/large/\ufffd\\u001b\\u0000");
    expect(plain.stdout.length).toBeLessThan(2000);
    expect(objects(json.stdout)).toMatchObject([
      {
        holders: [{ key: "hostile/large/6a1f", leaseId: "0", lease: "0".repeat(16) }],
        total: { holders: 1, waiters: 3 },
      },
    ]);
  });

  test("may be named by the user: a name with control characters is shown as any other", async () => {
    const { code, stdout } = await run("show", names[0]!, "--json");

    expect(code).toBe(0);
    expect(objects(stdout)).toMatchObject([
      { name: names[0], holders: [{ owner: "\u001b]0;title\u0007\n" }] },
    ]);
  });
});

describe("leasehold show", () => {
  test("and ls say of a sticky lock that its key may be kept", async () => {
    const name = "show/sticky";
    const mutex = new Mutex(two.holder, name, { sticky: true });
    await (await mutex.lock()).release();
    await two.queued(name, 0);
    await (await mutex.lock()).release();

    const [shown, json, listed] = await Promise.all([
      run("show", name),
      run("show", name, "--json"),
      run("ls", name),
    ]);

    const [title, , row] = cells(shown.stdout);
    expect(title).toEqual([name, "mutex", "1 held or kept, 0 waiting"]);
    expect(row?.slice(0, 2)).toEqual(["held or kept", "the holder"]);
    expect(objects(json.stdout)).toMatchObject([{ holders: [{ state: "holding", sticky: true }] }]);
    expect(cells(listed.stdout)[1]?.slice(0, 3)).toEqual([name, "mutex", "(sticky) the holder"]);
  });

  test("and ls say what each entry takes of a weighted semaphore, and who of them holds", async () => {
    const name = "show/weights";
    const semaphore = new Semaphore(two.holder, name, 10, { weighted: true });
    const holds = [await semaphore.acquire({ weight: 3 }), await semaphore.acquire({ weight: 6 })];
    const waiting = semaphore.acquire({ weight: 2 });
    await two.queued(name, 3);

    const [shown, json, listed] = await Promise.all([
      run("show", name),
      run("show", name, "--json"),
      run("ls", name, "--json"),
    ]);

    const [title, columns, ...rows] = cells(shown.stdout);
    expect(title).toEqual([name, "semaphore", "2 holding 9 of 10 permits, 1 waiting"]);
    expect(columns?.slice(0, 3)).toEqual(["STATE", "OWNER", "WEIGHT"]);
    expect(rows.map(([state, , weight]) => [state, weight])).toEqual([
      ["holding", "3 of 10"],
      ["holding", "6 of 10"],
      ["waiting", "2 of 10"],
    ]);
    expect(objects(json.stdout)).toMatchObject([{ waiters: [{ weighted: { permits: 10, weight: 2 } }] }]);
    expect(objects(listed.stdout)).toMatchObject([
      { total: { waiters: 1 }, holder: { weighted: { weight: 3 } } },
    ]);
    await Promise.all(holds.map((hold) => hold.release()));
    await (await waiting).release();
  });

  test("has the entries of all clients in the order of the queue, with the lease as etcdctl prints it", async () => {
    const name = "show/all";
    const { member } = two.etcd;
    const lock = await new Mutex(two.holder, name).lock();
    await using other = new EtcdctlLock(two.etcd, name);
    await two.queued(name, 2);
    // As jetcd has it: the server's lock service puts an empty value under the name and the lease.
    const lease = await grantLease(member, 600);
    await putKeys(member, [`${name}/${lease.toString(16)}`], { leaseId: lease });

    const [plain, json, one] = await Promise.all([
      run("show", name),
      run("show", name, "--json"),
      run("show", name, "--limit", "1"),
    ]);
    const { stdout: leases } = await two.etcd.etcdctl(["lease", "list"]);

    const [title, heads, ...rows] = cells(plain.stdout);
    expect([plain.code, title]).toEqual([0, ["show/all", "mutex", "1 holding, 2 waiting"]]);
    expect(heads).toEqual(["STATE", "OWNER", "JOINED", "SINCE", "TTL LEFT", "LEASE", "FENCE", "KEY"]);
    expect(rows.map(([state, owner]) => [state, owner])).toEqual([
      ["holding", "the holder"],
      ["waiting", expect.stringMatching(/^other client \(lease [0-9a-f]{16}\)$/)],
      ["waiting", `other client (lease ${lease.toString(16).padStart(16, "0")})`],
    ]);
    expect(rows.map((row) => row[6])[0]).toBe(lock.fence.toString());
    expect(rows.map((row) => row[7]).at(-1)).toBe(`${name}/${lease.toString(16)}`);
    for (const row of rows) expect(leases).toContain(row[5]);
    expect(rows[0]![4]).toMatch(/^\d+ s$/);
    const [queue] = objects(json.stdout);
    expect(queue).toMatchObject({
      holders: [
        {
          key: lock.key,
          lease: two.holder.leaseId.toString(16).padStart(16, "0"),
          ttlRemainingMs: expect.any(Number) as number,
        },
      ],
      total: { holders: 1, waiters: 2 },
    });
    expect(one.stdout).toMatch(/\nand 1 more waiting\n$/);
    await other.release();
    await lock.release();
  });

  test("ends with 1 and says so, or prints an empty queue as JSON, if nobody holds or waits", async () => {
    const [plain, json] = await Promise.all([run("show", "show/none"), run("show", "show/none", "--json")]);

    const nothing = 'leasehold: no client holds "show/none" or waits for it\n';
    expect([plain.code, plain.stdout, plain.stderr]).toEqual([1, "", nothing]);
    expect([json.code, json.stderr]).toEqual([1, ""]);
    expect(objects(json.stdout)).toMatchObject([{ name: "show/none", total: { holders: 0, waiters: 0 } }]);
  });
});

describe("5,000 locks", () => {
  const COUNT = 5_000;
  const name = (n: number) => `many/${String(n).padStart(5, "0")}`;
  const asked = async () => {
    const metrics = [...(await two.etcd.member.metrics())];
    const requests = metrics.filter(([series]) => /^grpc_server_handled_total.*"(Range|Txn)"/.test(series));
    return requests.reduce((total, [, count]) => total + count, 0);
  };
  beforeAll(async () => {
    const leaseId = await grantLease(two.etcd.member, 600);
    const value = JSON.stringify({ owner: "o".repeat(60), since: new Date().toISOString(), id: "x" });
    await putKeys(
      two.etcd.member,
      Array.from({ length: COUNT }, (_, n) => `${name(n)}/6a1f`),
      { leaseId, value },
    );
  });
  afterAll(async () => void (await two.etcd.etcdctl(["del", "--prefix", "many/"])));

  test("are read no faster than the output is: the first lines come while most pages are unread", async () => {
    const env = { ...process.env, ETCDCTL_ENDPOINTS: endpoints() };
    const child = owned(
      spawn(process.execPath, [CLI, "ls", "many/"], { env, stdio: ["ignore", "pipe", "inherit"] }),
    );
    const before = await asked();
    // This process takes the first bytes and no more, so the program waits for the pipe.
    await once(child.stdout, "readable");
    const atFirstLine = (await asked()) - before;
    const lines = (await text(child.stdout)).split("\n").slice(0, -1);
    const atEnd = (await asked()) - before;

    expect(lines).toHaveLength(COUNT + 1);
    expect(lines.slice(1).map((line) => line.split(" ")[0])).toEqual(
      Array.from({ length: COUNT }, (_, n) => name(n)),
    );
    expect(atFirstLine).toBeGreaterThan(0);
    expect(atFirstLine).toBeLessThan(atEnd / 2);
  });

  test("end without an error text, as of SIGPIPE, when the reader has read enough", async () => {
    const pipe = `"$0" "$1" ls many/ | head -2; exit "\${PIPESTATUS[0]}"`;
    const child = owned(
      spawn("bash", ["-c", pipe, process.execPath, CLI], {
        env: { ...process.env, ETCDCTL_ENDPOINTS: endpoints() },
        stdio: ["ignore", "pipe", "pipe"],
      }),
    );
    const [stdout, stderr, ended] = await Promise.all([
      text(child.stdout),
      text(child.stderr),
      once(child, "close"),
    ]);

    expect([stderr, ended]).toEqual(["", [128 + 13, null]]);
    expect(stdout).toMatch(/^NAME .*\nmany\/00000 .*\n$/);
  });

  test.each(["ls many/", "top --json many/"])(
    "end with 74 and one line when the output cannot be written: %s",
    async (words) => {
      const child = owned(
        spawn("bash", ["-c", `"$0" "$1" ${words} > /dev/full`, process.execPath, CLI], {
          env: { ...process.env, ETCDCTL_ENDPOINTS: endpoints() },
          stdio: ["ignore", "ignore", "pipe"],
        }),
      );
      const [stderr, ended] = await Promise.all([text(child.stderr), once(child, "close")]);

      expect([stderr, ended]).toEqual([
        expect.stringContaining("cannot write to standard output: ENOSPC"),
        [74, null],
      ]);
    },
  );
});
