// leasehold release: it removes what it has shown after a yes, or nothing.
import { describe, expect, test } from "vitest";
import { inspect, LockLostError, Mutex, RwLock } from "../../../src/index.js";
import { putKeys } from "../../support/clients/many-keys.js";
import { twoSessions } from "../../support/fixtures/two-sessions.js";
import { runCli, startCli } from "../../support/programs/cli.js";
import { abortOf } from "../../support/clients/session-client.js";

const two = twoSessions(30);
const endpoints = () => two.etcd.endpoints.join(",");
const run = (...words: string[]) => runCli(["release", ...words], { endpoints: endpoints() });
const onTerminal = (...words: string[]) =>
  startCli(["release", ...words], { endpoints: endpoints(), terminal: true });

describe("leasehold release NAME", () => {
  test("with --yes removes the holder, who is notified, prints it, and the next one holds", async () => {
    const name = "release/yes";
    const lock = await new Mutex(two.holder, name).lock();
    const next = new Mutex(two.session, name).lock();
    await two.queued(name, 2);

    const { code, stdout, stderr } = await run(name, "--yes");

    expect([code, stderr]).toEqual([0, ""]);
    expect(stdout).toBe(`released ${name}:  holding  the holder  key ${lock.key}  fence ${lock.fence}\n`);
    expect(await abortOf(lock.signal)).toBeInstanceOf(LockLostError);
    await (await next).release();
  });

  test("on a terminal shows the holder and asks: a yes removes it", async () => {
    const name = "release/terminal";
    const lock = await new Mutex(two.holder, name).lock();
    const program = onTerminal(name);
    await program.says("Remove it? [y/N] ");
    expect(program.stdout()).toContain("the holder");
    expect(program.stdout()).toContain(lock.key);
    expect(await two.places(name)).toHaveLength(1);

    program.child.stdin!.write("y\n");

    expect((await program.ended).code).toBe(0);
    expect(await two.places(name)).toEqual([]);
    await abortOf(lock.signal);
  });

  test.each([
    ["anything else", "yes please\n"],
    ["the end of the input", "\u0004"],
  ])("on a terminal removes nothing after %s, and ends with 1", async (_, answer) => {
    const name = "release/no";
    const lock = await new Mutex(two.holder, name).lock();
    const program = onTerminal(name);
    await program.says("[y/N] ");

    program.child.stdin!.write(answer);

    expect((await program.ended).code).toBe(1);
    expect(program.stdout()).toContain("nothing was released");
    await lock.release();
    expect(lock.signal.reason).not.toBeInstanceOf(LockLostError);
  });

  test("on a terminal removes nothing after Ctrl-C, and ends with 130", async () => {
    const name = "release/interrupted";
    const lock = await new Mutex(two.holder, name).lock();
    const program = onTerminal(name);
    await program.says("[y/N] ");

    program.child.stdin!.write("\u0003");

    expect((await program.ended).code).toBe(130);
    expect(lock.held).toBe(true);
    await lock.release();
  });

  test("never removes the holder who came after the one that it has shown", async () => {
    const name = "release/later";
    const lock = await new Mutex(two.holder, name).lock();
    const program = onTerminal(name);
    await program.says("[y/N] ");
    await lock.release();
    const later = await new Mutex(two.holder, name).lock();

    program.child.stdin!.write("y\n");

    expect((await program.ended).code).toBe(1);
    expect(program.stdout()).toContain(`no entry to release: ${name}`);
    expect(await two.places(name)).toMatchObject([{ revision: later.fence }]);
    await later.release();
  });

  test("ends with 1 if there is nobody, also as JSON", async () => {
    const [plain, json] = await Promise.all([
      run("release/nobody", "-y"),
      run("release/nobody", "-y", "--json"),
    ]);

    expect([plain.code, plain.stdout, plain.stderr]).toEqual([
      1,
      "",
      "leasehold: no entry to release: release/nobody\n",
    ]);
    expect([json.code, JSON.parse(json.stdout), json.stderr]).toEqual([
      1,
      { name: "release/nobody", released: null },
      "",
    ]);
  });

  test("of a lock that several hold asks for a key", async () => {
    const name = "release/readers";
    const reads = await Promise.all(
      [two.holder, two.session].map((each) => new RwLock(each, name).readLock()),
    );

    const byName = await run(name, "--yes");
    const byKey = await run(reads[1]!.key, "--yes", "--json");

    expect([byName.code, byName.stderr]).toEqual([
      64,
      `leasehold: 2 hold "${name}": give the key of one of them; leasehold show has the keys\n`,
    ]);
    expect([byKey.code, JSON.parse(byKey.stdout)]).toMatchObject([
      0,
      { name, released: { name, key: reads[1]!.key, state: "holding" } },
    ]);
    expect(await two.places(name)).toHaveLength(1);
    await Promise.allSettled(reads.map((read) => read.release()));
  });
});

describe("leasehold release KEY", () => {
  test("removes that waiter and leaves the holder", async () => {
    const name = "release/waiter";
    const { member } = two.etcd;
    const lock = await new Mutex(two.holder, name).lock();
    await putKeys(member, [`${name}/6a1f`]);

    const { code, stdout } = await run(`${name}/6a1f`, "-y");

    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(
        `^released ${name}: {2}waiting {2}${name}/6a1f {2}key ${name}/6a1f {2}fence \\d+\n$`,
      ),
    ]);
    expect(await two.places(name)).toHaveLength(1);
    expect(lock.held).toBe(true);
    await lock.release();
  });

  test.each(["junk/a//b", "junk/a/\u001b[31m"])(
    "removes a key that no client has put well: %j",
    async (key) => {
      await putKeys(two.etcd.member, ["junk/a/1"]);
      await putKeys(two.etcd.member, [key]);

      const { code, stdout } = await run(key, "-y");

      expect(code).toBe(0);
      expect(stdout).not.toContain("\u001b");
      expect((await inspect(two.cluster, "junk/a")).total).toEqual({ holders: 1, waiters: 0 });
    },
  );

  test("removes a binary key that holds, by the name of its queue", async () => {
    const key = Buffer.concat([Buffer.from("junk/binary/"), Buffer.of(0xff, 0xfe)]);
    await two.etcd.member.gateway("/v3/kv/put", { key: key.toString("base64") });

    const { code, stdout } = await run("junk/binary", "-y");

    expect([code, stdout]).toEqual([0, expect.stringContaining("junk/binary/\ufffd\ufffd") as string]);
    expect((await inspect(two.cluster, "junk/binary")).total.holders).toBe(0);
  });

  test("asks which one is meant if the word is a name and a key", async () => {
    await putKeys(two.etcd.member, ["both/a"]);
    await putKeys(two.etcd.member, ["both/a/6a1f"]);

    const unclear = await run("both/a", "-y");
    const name = await run("both/a", "-y", "--json", "--as", "name");
    const key = await run("both/a", "-y", "--json", "--as", "key");

    expect([unclear.code, unclear.stderr]).toEqual([
      64,
      'leasehold: "both/a" is the name of a lock and the key of an entry: give --as name or --as key; see leasehold release --help\n',
    ]);
    expect(JSON.parse(name.stdout)).toMatchObject({ name: "both/a", released: { key: "both/a/6a1f" } });
    expect(JSON.parse(key.stdout)).toMatchObject({ name: "both", released: { key: "both/a" } });
  });
});
