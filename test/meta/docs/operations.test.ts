// The commands of docs/operations.md, run by a shell as an operator runs them.
import { execFile } from "node:child_process";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { connect, EtcdRefusedError, Mutex } from "../../../src/index.js";
import { startEtcd } from "../../support/etcd/etcd.js";
import { findEtcd } from "../../support/etcd/etcd-find.js";
import { partsOf } from "../../support/fixtures/pages.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";

/** Runs the commands of a section of the page, with etcdctl on the PATH, until one fails. */
async function follow(title: string, endpoints: readonly string[]): Promise<void> {
  const section = partsOf("docs/operations.md").find((part) => part.title === title);
  const commands = section?.blocks.find(({ language }) => language === "sh")?.code ?? "false";
  const { etcdctl } = await findEtcd();
  const PATH = `${path.dirname(etcdctl)}:${process.env["PATH"]}`;
  const env = { ...process.env, PATH, ETCDCTL_API: "3", ETCDCTL_ENDPOINTS: endpoints.join() };
  await promisify(execFile)("sh", ["-ec", commands], { env, timeout: 60_000 });
}

test("the commands under Users and roles make a user that may lock below the prefix, and nowhere else", async () => {
  await using etcd = await startEtcd();
  await follow("Users and roles", etcd.endpoints);

  const auth = { username: "worker", password: "WORKER_PASSWORD" };
  await using cluster = connect({ hosts: etcd.endpoints, auth });

  expect(await new Mutex(cluster, "jobs/nightly").withLock(() => "locked")).toBe("locked");
  const reason = await reasonOf(new Mutex(cluster, "orders/17").lock());
  expect(reason).toBeInstanceOf(EtcdRefusedError);
  expect((reason as EtcdRefusedError).reason).toBe("permission");
}, 120_000);

test("the commands under Alarms let locks work again after etcd was full, and held locks have stayed", async () => {
  await using etcd = await startEtcd({ args: ["--quota-backend-bytes=2000000"] });
  await using cluster = connect({ hosts: etcd.endpoints });
  const held = await new Mutex(cluster, "jobs/held").lock();
  // versions of one key, as locks make them: compaction removes them
  const put = { key: btoa("one key"), value: btoa("x".repeat(400_000)) };
  for (let n = 0; n < 10; n++) await etcd.member.gateway("/v3/kv/put", put).catch(() => undefined);
  // The alarm follows the first put that etcd rejects.
  const full = () => reasonOf(new Mutex(cluster, "jobs/new").withLock(() => undefined));
  await expect.poll(async () => ((await full()) as EtcdRefusedError | undefined)?.reason).toBe("quota");

  await follow("Alarms", etcd.endpoints);

  expect(await new Mutex(cluster, "jobs/new").withLock(() => "locked")).toBe("locked");
  expect(held.held).toBe(true);
  await held.release();
}, 120_000);
