// A password that is changed while a process runs, whose `auth` is a function, reaches the thread that renews its leases, and its guardian.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";
import { Busy } from "../../support/programs/busy.js";
import { Guarded } from "../../support/programs/guarded.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const TTL_SECONDS = 6;
const TTL_MS = TTL_SECONDS * 1000;
const CHANGED = "changed-secret";
const PATIENCE = { timeout: 2 * TTL_MS, interval: 50 };

let etcd: UserEtcd;
let folder: string;
/** What the function `auth` of the process reads. */
let user: string;
beforeEach(async () => {
  etcd = await startWithUsers();
  folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-user-"));
  user = path.join(folder, "user.json");
  await writeFile(user, JSON.stringify(WORKER));
}, 60_000);
afterEach(async () => {
  await etcd.stop();
  await rm(folder, { recursive: true });
});

const change = () => etcd.ask("auth/user/changepw", { name: WORKER.username, password: CHANGED });
const publish = () => writeFile(user, JSON.stringify({ ...WORKER, password: CHANGED }));
const metric = async (name: string) => (await etcd.etcd.member.metrics()).get(name) ?? 0;

/** How many Authenticate calls etcd has refused. */
async function refusals(): Promise<number> {
  const metrics = [...(await etcd.etcd.member.metrics())];
  const refused = metrics.filter(
    ([key]) => key.startsWith("grpc_server_handled_total") && /"Authenticate"/.test(key) && !/"OK"/.test(key),
  );
  return refused.reduce((sum, [, count]) => sum + count, 0);
}

test(
  "a worker thread renews on with the password that the function returns now",
  { timeout: 90_000 },
  async () => {
    await using proxy = await startTcpProxy({ port: etcd.etcd.member.clientPort });
    const options = { hosts: proxy.endpoint, user, session: { ttlSeconds: TTL_SECONDS } };
    await using program = await Busy.start(
      { ...options, renewal: "worker", maxStallMs: 60_000 },
      "jobs/thread",
    );

    // Tokens of the user end with its password. Until the function returns the new one, etcd refuses every login.
    await change();
    proxy.reset();
    await expect.poll(refusals, PATIENCE).toBeGreaterThan(0);
    await publish();
    expect(await program.idle(1.5 * TTL_MS)).toMatchObject({ held: true, aborted: false });

    // Now only the thread can log in.
    const blocked = program.block(2 * TTL_MS);
    const renewals = await metric("etcd_debugging_lease_renewed_total");
    await expect.poll(() => metric("etcd_debugging_lease_renewed_total"), PATIENCE).toBeGreaterThan(renewals);
    await etcd.dropTokens();
    const logins = await etcd.authentications();
    proxy.reset();
    await expect.poll(() => etcd.authentications(), PATIENCE).toBeGreaterThan(logins);
    expect(await blocked).toMatchObject({ held: true, aborted: false });
    expect(await metric("etcd_debugging_server_lease_expired_total")).toBe(0);
  },
);

test(
  "a guardian revokes with the password that its process has just got from the function",
  { timeout: 90_000 },
  async () => {
    // Without a revocation, the key outlives the wait below.
    const session = { ttlSeconds: 5 * TTL_SECONDS };
    await using program = await Guarded.start({ hosts: etcd.endpoints, user, session }, ["jobs/guarded"]);
    expect(await etcd.keysIn("jobs/guarded")).toHaveLength(1);

    // In this order, nobody logs in with the former password.
    await publish();
    await change();
    // The process asks for another token, or reads again for its guardian.
    await program.readsPassword(CHANGED);
    const refused = await refusals();
    await program.kill();

    await expect.poll(() => etcd.keysIn("jobs/guarded"), { ...PATIENCE, timeout: 60_000 }).toEqual([]);
    expect(await metric("etcd_debugging_server_lease_expired_total")).toBe(0);
    expect(await refusals()).toBe(refused);
  },
);
