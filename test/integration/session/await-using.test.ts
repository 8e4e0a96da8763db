// `await using cluster = connect()`, compiled as a user's program for the oldest Node.js is.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import ts from "typescript";
import { beforeAll, expect, test } from "vitest";
import { startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage } from "../../support/fixtures/examples.js";

const LEASEHOLD = new URL("../../../dist/leasehold.js", import.meta.url).href;
const ROOT = fileURLToPath(new URL("../../../", import.meta.url));

const program = (hosts: readonly string[]) => `
import { connect, Mutex } from ${JSON.stringify(LEASEHOLD)};
{
  await using cluster = connect({ hosts: ${JSON.stringify(hosts.join(","))} });
  await using lock = await new Mutex(cluster, "using").lock();
  console.log(lock.held);
}
console.log("closed");
`;

beforeAll(buildPackage, 120_000);

test("a program whose block ends closes its cluster, revokes its lease and ends", async () => {
  await using etcd = await startEtcd();
  const options = { target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.ESNext };
  const { outputText } = ts.transpileModule(program(etcd.endpoints), { compilerOptions: options });
  expect(outputText).not.toContain("await using");

  const node = ["--input-type=module", "--eval", outputText];
  const { stdout } = await promisify(execFile)(process.execPath, node, { cwd: ROOT });

  expect(stdout).toBe("true\nclosed\n");
  const leases = await etcd.etcdctl(["lease", "list"]);
  expect(leases.stdout).toContain("found 0 leases");
});
