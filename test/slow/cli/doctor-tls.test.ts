// What `leasehold doctor` says about TLS and certificates.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startEtcd, type EtcdCluster } from "../../support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../support/fixtures/certificates.js";
import { examined, failures, findingsOf } from "../../support/fixtures/doctor.js";

const authority = makeAuthority("our authority");
const stranger = makeAuthority("another authority");
const written: { remove(): Promise<void> }[] = [];
let folder: string;
/** It requires client certificates. */
let strict: EtcdCluster;
let expired: EtcdCluster;
/** Without its HTTP gateway, and with a certificate for five more days. */
let closed: EtcdCluster;

async function start(validDays: number, clientCertAuth: boolean, args: readonly string[] = []) {
  const files = await writeServerFiles(authority, authority.issue("etcd", undefined, { validDays }));
  written.push(files);
  return startEtcd({ args, clientTls: { ...files, clientCertAuth } });
}

const file = (name: string) => path.join(folder, name);
const put = async (name: string, text: Uint8Array) => writeFile(file(name), text);

beforeAll(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-doctor-"));
  const [own, late] = [authority.issue("client"), authority.issue("late", [], { validDays: -1 })];
  await Promise.all([
    put("ca.pem", authority.certificate),
    put("stranger.pem", stranger.certificate),
    ...[put("cert.pem", own.certificate), put("key.pem", own.key)],
    ...[put("late.pem", late.certificate), put("late-key.pem", late.key)],
  ]);
  [strict, expired, closed] = await Promise.all([
    start(30, true),
    start(-1, false),
    start(5, false, ["--enable-grpc-gateway=false"]),
  ]);
}, 60_000);
afterAll(async () => {
  await Promise.all([strict, expired, closed].map((etcd) => etcd?.stop()));
  await Promise.all([
    ...written.map((files) => files.remove()),
    rm(folder, { recursive: true, force: true }),
  ]);
});

const trusting = () => ["--cacert", file("ca.pem")];
const shown = () => [...trusting(), "--cert", file("cert.pem"), "--key", file("key.pem")];
const only = (etcd: EtcdCluster) => etcd.endpoints[0] ?? "";

describe("leasehold doctor", () => {
  test("finds nothing wrong with valid certificates, and says how long they are valid", async () => {
    const { code, findings } = await examined(strict.endpoints, shown());

    expect(code).toBe(0);
    expect(findingsOf(findings, only(strict))).toMatchObject({ tls: "ok", certificate: "ok", lock: "ok" });
    const days = findings.filter(({ check }) => /certificate/.test(check)).map(({ measured }) => measured);
    expect(days).toEqual([{ daysLeft: 29 }, { daysLeft: 29 }]);
  });

  test("tells a client without TLS that the port speaks TLS", async () => {
    const plain = only(strict).replace("https:", "http:");
    const { code, findings } = await examined([plain]);

    expect(code).toBe(69);
    expect(failures(findings, plain)).toEqual([
      expect.stringMatching(/^tls: this port speaks TLS, not plain HTTP \| use https:\/\/ in --endpoints/),
    ]);
  });

  test("names an expired certificate, and sends its server nothing more", async () => {
    const { code, findings } = await examined(expired.endpoints, trusting());

    expect(code).toBe(69);
    expect(failures(findings, only(expired))).toEqual([
      expect.stringMatching(/^certificate: expired on \d{4}-\d\d-\d\d \| renew it/),
    ]);
    expect(findingsOf(findings, only(expired))).toEqual({ reach: "ok", certificate: "fail" });
  });

  test("names a certificate of another name, with the names that it has", async () => {
    const { code, findings } = await examined(strict.endpoints, [
      ...shown(),
      "--server-name",
      "etcd.example",
    ]);

    expect(code).toBe(69);
    expect(failures(findings, only(strict))).toEqual([
      expect.stringMatching(
        /^certificate: not for the name etcd\.example; it has .*DNS:localhost.* \| .*--server-name/,
      ),
    ]);
  });

  test("names an authority that is not trusted", async () => {
    const { code, findings } = await examined(strict.endpoints, ["--cacert", file("stranger.pem")]);

    expect(code).toBe(69);
    expect(failures(findings, only(strict))).toEqual([
      expect.stringMatching(/^certificate: not trusted \([A-Z_]+\) \| .*--cacert/),
    ]);
  });

  test("says that the server wants a client certificate, and that the given one has expired", async () => {
    const late = [...trusting(), "--cert", file("late.pem"), "--key", file("late-key.pem")];
    const [none, old] = await Promise.all([
      examined(strict.endpoints, trusting()),
      examined(strict.endpoints, late),
    ]);

    for (const { code, findings } of [none, old]) {
      expect(code).toBe(69);
      expect(failures(findings, only(strict))).toEqual([
        expect.stringMatching(/^tls: the server wants a client certificate that it trusts \| give --cert/),
      ]);
    }
    expect(failures(old.findings, null)).toContainEqual(
      expect.stringMatching(/^client certificate: expired on .* \| renew it/),
    );
  });

  test("warns of a certificate that expires soon, and says what it cannot check without the gateway", async () => {
    const { code, findings } = await examined(closed.endpoints, trusting());

    expect(code).toBe(0);
    expect(findingsOf(findings, only(closed))).toMatchObject({
      certificate: "warn",
      status: "skip",
      lock: "ok",
    });
    expect(findings).toContainEqual(
      expect.objectContaining({
        check: "status",
        message:
          "the HTTP gateway is switched off (--enable-grpc-gateway=false): alarms, space, leader and members were not checked",
      }),
    );
    expect(findings).toContainEqual(
      expect.objectContaining({
        check: "certificate",
        message: expect.stringMatching(/^expires in 4 days, on /) as string,
        hint: "renew it",
      }),
    );
  });
});
