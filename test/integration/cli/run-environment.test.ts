// What the command of `leasehold run` and `leasehold lead` finds in its environment.
import { afterAll, beforeAll, expect, test } from "vitest";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { runCli } from "../../support/programs/cli.js";

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const print = `printf '%s,%s' "$ETCDCTL_USER" "\${ETCDCTL_PASSWORD-none}"`;
const printedBy = async (words: readonly string[], user: Readonly<Record<string, string>>) => {
  const command = [...words, "--", "sh", "-c", print];
  return (await runCli(command, { endpoints: etcd.endpoints.join(","), env: user })).stdout;
};

test.each([
  ["run", { ETCDCTL_USER: "root", ETCDCTL_PASSWORD: "s3cret" }],
  ["run", { ETCDCTL_USER: "root:s3cret" }],
  ["lead", { ETCDCTL_USER: "root", ETCDCTL_PASSWORD: "s3cret" }],
])(
  "the command of %s has the user in %j and no password, unless --keep-env says so",
  async (command, user) => {
    expect(await printedBy([command, "jobs/env"], user)).toBe("root,none");
    expect(await printedBy([command, "jobs/env", "--keep-env"], user)).toContain("s3cret");
  },
);

test("a command without a name does not exist, as in a shell", async () => {
  const words = ["run", "jobs/empty", "--", ""];
  const { code, stderr } = await runCli(words, { endpoints: etcd.endpoints.join(",") });

  expect({ code, stderr }).toEqual({ code: 127, stderr: "leasehold: '': command not found\n" });
});
