// `renewal: "worker"`: TLS, users, several clusters, a delay lease and threads of the user are as on the main thread.
import tls from "node:tls";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { afterAll, beforeAll, describe, test } from "vitest";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { startWithUsers, WORKER } from "../../support/fixtures/users.js";
import { Busy } from "../../support/programs/busy.js";
import { Said } from "../../support/programs/said.js";

const TTL_SECONDS = 5;
const TTL_MS = TTL_SECONDS * 1000;
const BLOCK_MS = 1.5 * TTL_MS;

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()));
afterAll(() => etcd.stop());

const optionsOf = (more: object = {}) => ({
  hosts: etcd.endpoints,
  session: { ttlSeconds: TTL_SECONDS },
  ...{ renewal: "worker" as const, maxStallMs: 60_000 },
  ...more,
});

describe("a blocked program keeps its locks", { concurrent: true }, () => {
  test("TLS, and a password", async ({ expect, onTestFinished }) => {
    const authority = makeAuthority("renewed");
    const files = await writeServerFiles(authority, authority.issue("etcd"));
    onTestFinished(() => files.remove());
    await using secure = await startEtcd({ clientTls: files });
    const credentials = { rootCertificate: authority.certificate.toString() };
    await using over = await Busy.start(optionsOf({ hosts: secure.endpoints, credentials }), "tls/a");
    const users = await startWithUsers();
    onTestFinished(() => users.etcd.stop());
    await using named = await Busy.start(optionsOf({ hosts: users.endpoints, auth: WORKER }), "jobs/a");

    const blocked = await Promise.all([over, named].map((program) => program.block(BLOCK_MS)));
    expect(blocked).toEqual(blocked.map(() => expect.objectContaining({ held: true }) as unknown));
  });

  test("hosts of another etcd cluster in the list are not asked", async ({ expect }) => {
    await using other = await startEtcd();
    const hosts = [...etcd.endpoints, ...other.endpoints];
    const programs = await Promise.all(
      Array.from({ length: 6 }, (_, n) => Busy.start(optionsOf({ hosts }), `two/${n}`)),
    );
    const blocked = await Promise.all(programs.map((program) => program.block(BLOCK_MS)));
    await Promise.all(programs.map((program) => program.kill()));

    expect(blocked.map(({ held }) => held)).toEqual(programs.map(() => true));
  });

  test("authorities that Node.js trusts by itself are trusted", async ({ expect, onTestFinished }) => {
    const authority = makeAuthority("trusted");
    const files = await writeServerFiles(authority, authority.issue("etcd"));
    onTestFinished(() => files.remove());
    await using secure = await startEtcd({ clientTls: files });
    const options = optionsOf({ hosts: secure.endpoints });
    const ways = [
      { env: { NODE_EXTRA_CA_CERTS: files.ca } },
      { env: { SSL_CERT_FILE: files.ca, NODE_OPTIONS: "--use-openssl-ca" } },
      // Since Node.js 22.19.
      ...("setDefaultCACertificates" in tls
        ? [{ env: { SSL_CERT_FILE: files.ca, NODE_OPTIONS: "--use-system-ca" } }]
        : []),
    ];
    const programs = await Promise.all(ways.map(({ env }, n) => Busy.start(options, `trusted/${n}`, env)));
    const blocked = await Promise.all(programs.map((program) => program.block(BLOCK_MS)));
    await Promise.all(programs.map((program) => program.kill()));

    expect(blocked.map(({ held }) => held)).toEqual(ways.map(() => true));
  });

  test("a worker thread of the user has one of its own", async ({ expect }) => {
    const program = fileURLToPath(new URL("../../support/programs/busy-program.js", import.meta.url));
    const argv = [JSON.stringify(optionsOf()), "thread/a"];
    const worker = new Worker(program, { argv, stdin: true, stdout: true });
    const said = new Said(worker);
    await said.next();
    worker.stdin?.write(`block ${BLOCK_MS}\n`);

    expect(JSON.parse(await said.next())).toMatchObject({ held: true });
    await worker.terminate();
  });

  test("a delay lease is renewed with its session's", async ({ expect }) => {
    const session = { ttlSeconds: TTL_SECONDS, releaseDelayMs: 1000 };
    await using program = await Busy.start(optionsOf({ session }), "delayed/a");
    const both = await placesOf(etcd.member, "delayed/a");
    expect(both).toHaveLength(2);
    expect(await program.block(BLOCK_MS)).toMatchObject({ held: true });

    expect(await placesOf(etcd.member, "delayed/a")).toEqual(both);
    expect(await program.end("close")).toBe(0);
    // The lock was still held: its delay lasts.
    expect(await placesOf(etcd.member, "delayed/a")).toHaveLength(1);
    await expect.poll(() => placesOf(etcd.member, "delayed/a")).toEqual([]);
  });
});
