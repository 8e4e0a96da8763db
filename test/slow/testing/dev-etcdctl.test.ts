// etcdctl of the oldest and the newest version of etcd, against that etcd and against `startDevEtcd`: it must print the same. What a user
// reads is tested nowhere else; the answers themselves are those of test/sim/fidelity, with each version.
import { execFile } from "node:child_process";
import { describe, expect, test } from "vitest";
import { searchEtcd, STEPS } from "../../../src/testing/find.js";
import { startDevEtcd, startEtcd, type TestEtcd } from "../../../src/testing/start.js";

const VERSIONS = ["3.4", "3.7"] as const;

const found = await Promise.all(
  VERSIONS.map(async (version) => {
    const search = { env: process.env, version, withClient: true };
    const programs = await searchEtcd(STEPS, search).catch((error: unknown) => error as Error);
    return programs instanceof Error ? undefined : { version, etcdctl: programs.etcdctl ?? "" };
  }),
);
const missing = VERSIONS.filter((_, n) => found[n] === undefined);
if (missing.length > 0) console.log(`not run: this machine has no etcd ${missing.join(", ")}`);

/** What a user types, line by line. After " < " comes what etcdctl reads. `{lease}` is the lease that the script has granted. */
const SCRIPT = `
  put a 1
  put b 2
  put c 3 --prev-kv
  put a 10 --prev-kv
  get a
  get a -w json
  get a -w fields
  get --prefix --keys-only e
  get --prefix ''
  get --from-key b
  get a c
  get --prefix '' --limit=1 -w json
  get --prefix '' --count-only -w fields
  get --prefix '' --sort-by=VERSION --order=DESCEND
  get --prefix '' --sort-by=MODIFY --order=DESCEND
  get --prefix '' --sort-by=VALUE
  get --prefix '' --sort-by=CREATE --order=DESCEND --limit=2
  get --prefix '' --order=DESCEND
  get a --rev=2
  get a --rev=99
  get a --consistency=s
  get none
  get ''
  put '' x
  put a --ignore-value
  put none --ignore-value
  put a zz --ignore-lease
  put none zz --ignore-lease
  put a x --lease=123
  put text ä中
  get text -w json
  get text --hex
  del c --prev-kv
  del c
  put d/1 x
  put d/2 y
  del --prefix d/ --prev-kv
  put d/1 x
  put d/2 y
  del d/1 d/3
  del --from-key zzz
  txn < value("a") = "zz"|version("b") = "1"||put x 1|get a||put y 1||
  txn < mod("a") > "1000"||put x 1||put y 1|get --prefix ''|del x||
  txn -w json < create("nope") = "0"|version("a") > "1"||put w 1|get w|del v|||
  txn < value("a") < "zzz"||put k 1|put k 2|||
  txn < value("nope") != "q"||get a||get b||
  txn < mod("a") != "3"||get a --rev=1000||get b||
  compact 5
  get a --rev=2
  compact 5
  compact 5000
  watch a --rev=3
  lease grant 600
  lease list
  put l1 v --lease={lease}
  lease timetolive {lease}
  lease timetolive {lease} --keys
  lease keep-alive --once {lease}
  put l1 v3 --ignore-lease
  get l1 -w json
  lease revoke {lease}
  lease revoke {lease}
  lease timetolive {lease}
  lease keep-alive --once {lease}
  get --prefix l
  lease grant 99999999999
  member list
  member list -w table
  endpoint health
  endpoint status
  endpoint status -w json
  endpoint hashkv
  alarm list
  defrag
  move-leader 1
  lock --ttl=600 busy echo held
  user add root:pw
  user add u:up
  user add u:up
  user add locked --no-password
  role add r
  role add r
  role grant-permission r readwrite app/ --prefix
  role grant-permission r read pub
  role grant-permission r read z --from-key
  role grant-permission q read pub
  role get r
  role get q
  role list
  user list
  user grant-role u r
  user grant-role u nor
  user grant-role nou r
  user get u
  user get u --detail
  user get nou
  role revoke-permission r pub
  role revoke-permission r pub
  user passwd u --interactive=false < newpw
  auth status
  auth enable
  auth status
  get a
  --user=u:newpw get a
  --user=u:newpw put app/x 1
  --user=u:newpw get app/x
  --user=u:wrong get app/x
  --user=locked: get app/x
  --user=nobody:x get app/x
  --user=u:newpw user list
  --user=u:newpw user get u
  --user=u:newpw role get r
  --user=u:newpw user get root
  --user=root:pw user list
  --user=root:pw get a
  --user=u:newpw txn -w json < mod("app/x") > "0"||put app/y 1||get a||
  --user=u:newpw txn -w json < mod("app/x") > "0"||put app/y 1||get app/x||
  --user=u:newpw put app/y 2 --prev-kv
  --user=u:newpw lease grant 600
  --user=u:newpw member list
  --user=u:newpw endpoint health
  --user=u:newpw endpoint status
  --user=u:newpw endpoint hashkv
  --user=u:newpw alarm list
  --user=u:newpw compact 6
  --user=u:newpw watch a
  endpoint health
  member list
  endpoint status
  endpoint hashkv
  alarm list
  lease list
  lease grant 600
  --user=root:pw auth status
  --user=root:pw user revoke-role root root
  --user=root:pw role delete root
  --user=root:pw user delete root
  --user=root:pw user revoke-role u r
  --user=root:pw role delete r
  --user=root:pw user delete u
  --user=root:pw auth disable
  get a
  user list
  role list
  del --prefix ''
  get --prefix '' -w json
`;

function call(etcdctl: string, words: readonly string[], input: string): Promise<string> {
  const env = { PATH: process.env["PATH"], ETCDCTL_API: "3" };
  return new Promise((resolve) => {
    const child = execFile(etcdctl, words, { env, timeout: 20_000 }, (error, stdout, stderr) =>
      resolve(`${stdout}${stderr}${error ? `exit code ${String(error.code)}` : ""}`),
    );
    child.stdin?.end(input);
  });
}

/** Without what no two runs have in common: IDs, addresses, times, sizes, hashes, and what the client logs besides the error. */
const comparable = (text: string, host: string): string =>
  text
    .replace(/^\{"level".*\n/gm, (line) => /"error":"([^"]*)"/.exec(line)?.[1] ?? "")
    .replaceAll(`http://${host}`, "URL")
    .replaceAll(host, "HOST")
    .replace(/http:\/\/127\.0\.0\.1:\d+/g, "URL")
    .replace(/"(lease|leader|hash|\w*_id|ID|raft\w*Index|dbSize\w*)":\d+/g, '"$1":N')
    .replace(/"(\w*ID|\w+Index|RaftTerm|Lease)" : \d+/g, '"$1" : N')
    .replace(/\b[0-9a-f]{13,16}\b/g, "ID")
    .replace(/remaining\(\w+\)|took (= )?[\d.]+[µm]?s|\d+(\.\d+)? kB|, \d+%/g, "N")
    .replace(/HOST, \d{3,}/g, "HOST, N")
    .replace(/(true|false), (\d+), \d+, \d+,/g, "$1, $2, N, N,")
    .replace(/ {2,}|-{3,}|─+/g, "-");

async function printed(etcdctl: string, { hosts: [host = ""] }: TestEtcd): Promise<string[]> {
  const outputs: string[] = [];
  let lease = "";
  for (const line of SCRIPT.trim().split("\n")) {
    const [command = "", input = ""] = line.trim().split(" < ");
    const words = command.split(" ").map((word) => (word === "''" ? "" : word.replace("{lease}", lease)));
    const text = await call(etcdctl, [`--endpoints=${host}`, ...words], input.replaceAll("|", "\n"));
    if (command === "lease grant 600") lease = /lease (\w+)/.exec(text)?.[1] ?? "";
    outputs.push(`etcdctl ${command}\n${comparable(text, host)}`);
  }
  return outputs;
}

describe.each(found.filter((each) => each !== undefined))("etcdctl $version", ({ version, etcdctl }) => {
  test("prints the same for startDevEtcd() as for an etcd of its version", { timeout: 120_000 }, async () => {
    await using real = await startEtcd({ version });
    await using dev = await startDevEtcd({ port: 0, version });
    const [expected, got] = await Promise.all([printed(etcdctl, real), printed(etcdctl, dev)]);

    expect(got).toEqual(expected);
  });
});
