import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, Mutex } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { familiesIn, samplesIn } from "../../support/fixtures/prometheus.js";

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

const report = async (url: string, user: string) =>
  (await fetch(`${url}/reports/${user}`, { method: "POST" })).status;
const scrape = async (url: string) => (await fetch(`${url}/metrics`)).text();

const LABELS = { leasehold_kind: "mutex", leasehold_label: "reports/:user" };

describe("examples/otel-prometheus.js", { timeout: 60_000 }, () => {
  test("counts each lock once, by outcome, under one label", async () => {
    await using examples = new Examples(etcd.endpoints);
    const { url, program } = await examples.serve("otel-prometheus.js");

    const served = await Promise.all(["ann", "bob", "ann", "cid", "ann"].map((user) => report(url, user)));
    const cluster = connect({ hosts: etcd.endpoints });
    const refused = await new Mutex(cluster, "reports/dan").withLock(() => report(url, "dan"));
    await cluster.close();
    const text = await scrape(url);

    expect([served, refused]).toEqual([[200, 200, 200, 200, 200], 429]);
    const samples = samplesIn(text);
    const value = (name: string, labels: Record<string, string> = {}) => samples.value(name, labels);
    const granted = { ...LABELS, leasehold_outcome: "granted" };
    expect(value("leasehold_acquire_duration_count", granted)).toBe(5);
    expect(value("leasehold_acquire_duration_bucket", { ...granted, le: "+Inf" })).toBe(5);
    expect(value("leasehold_acquire_duration_count", { ...LABELS, leasehold_outcome: "timeout" })).toBe(1);
    expect(value("leasehold_acquire_duration_sum", { leasehold_outcome: "timeout" })).toBeGreaterThan(0.9);
    expect(value("leasehold_hold_duration_count", { ...LABELS, leasehold_reason: "released" })).toBe(5);
    expect(value("leasehold_holds_active", LABELS)).toBe(0);
    expect(value("leasehold_waiters", LABELS)).toBe(0);
    for (const reason of ["max_hold", "expired", "revoked", "deleted", "closed"])
      expect(value("leasehold_holds_lost_total", { leasehold_reason: reason })).toBe(0);
    for (const state of ["down", "refused"])
      expect(value("leasehold_failovers_total", { leasehold_member_state: state })).toBe(0);
    expect(value("leasehold_session_ttl")).toBe(2);
    expect(value("leasehold_session_remaining")).toBeLessThanOrEqual(1.8);
    expect(text).not.toMatch(/ann|bob|cid|dan/);

    program.signal("SIGTERM");
    const { code, stderr } = await program.ended;
    expect([code, stderr]).toEqual([0, ""]);
  });

  test("has every family with its type, help and unit", async () => {
    await using examples = new Examples(etcd.endpoints);
    const { url } = await examples.serve("otel-prometheus.js");
    await report(url, "ann");
    await expect
      .poll(async () => samplesIn(await scrape(url)).value("leasehold_session_renewal_duration_count"))
      .toBeGreaterThan(0);

    const families = familiesIn(await scrape(url)).filter(({ name }) => name.startsWith("leasehold_"));

    expect(families.map(({ name, type }) => `${name} ${type}`).sort()).toEqual([
      "leasehold_acquire_duration histogram",
      "leasehold_failovers_total counter",
      "leasehold_hold_duration histogram",
      "leasehold_holds_active gauge",
      "leasehold_holds_lost_total counter",
      "leasehold_session_remaining gauge",
      "leasehold_session_renewal_duration histogram",
      "leasehold_session_ttl gauge",
      "leasehold_waiters gauge",
    ]);
    expect(families.filter(({ help }) => help === "" || help === "description missing")).toEqual([]);
  });
});
