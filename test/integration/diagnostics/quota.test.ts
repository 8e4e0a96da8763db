// An etcd whose quota is used up: what the events, the metrics, the spans and the log say of the calls that it rejects.
import { SpanStatusCode } from "@opentelemetry/api";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { acquireChannel, callChannel, CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { AcquireMessage, CallMessage, ElectionMessage } from "../../../src/base/telemetry/messages.js";
import { type Cluster, connect, lead, Mutex } from "../../../src/index.js";
import type { Instrumentation } from "../../../src/observe/otel/instrument.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { Lines } from "../../support/fixtures/log-world.js";
import { Messages } from "../../support/fixtures/messages.js";
import { MemorySdk } from "../../support/fixtures/otel.js";
import { Traced } from "../../support/fixtures/published.js";
import { fillQuota } from "../../support/fixtures/space-alarm.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { leasesOf, placesOf } from "../../support/clients/server-view.js";

const QUOTA = 2 << 20;
const REFUSED = { code: "ETCD_REFUSED", reason: "quota" };
const LABEL = "jobs/:id";
const log = new Lines();

let etcd: EtcdCluster;
/** Has a session, and a lock, from the time when there was room. */
let cluster: Cluster;
let sdk: MemorySdk;
let instrumentation: Instrumentation;

beforeAll(async () => {
  etcd = await startEtcd({ args: [`--quota-backend-bytes=${QUOTA}`] });
  cluster = connect({ hosts: etcd.endpoints, session: { ttlSeconds: 20, owner: "early" }, log });
  await new Mutex(cluster, "quota/held").lock();
  await fillQuota(etcd);
}, 90_000);
afterAll(async () => {
  await cluster.close();
  await etcd.stop();
});
beforeEach(() => {
  log.all.length = 0;
  sdk = new MemorySdk();
  instrumentation = sdk.instrument();
});
afterEach(async () => {
  instrumentation.disable();
  await sdk.shutdown();
});

const outcomes = () => sdk.by("leasehold.outcome", "leasehold.acquire.duration");

test("a lock that etcd rejects for its quota is an error in the events, the metrics, the span and the log", async () => {
  using acquisitions = new Traced<AcquireMessage>(acquireChannel);
  using calls = new Traced<CallMessage>(callChannel);
  const name = "quota/rejected";
  const { owner, leaseId } = await cluster.session();

  const error = await reasonOf(new Mutex(cluster, name, { label: LABEL }).lock());

  expect(error).toMatchObject({ ...REFUSED, host: etcd.member.endpoint });
  expect(acquisitions.of("error")).toEqual(acquisitions.ended);
  expect(acquisitions.ended).toMatchObject([
    { ...{ name, label: LABEL, owner, leaseId, outcome: "error" }, key: undefined, fence: undefined },
  ]);
  expect(acquisitions.ended[0]?.error).toBe(error);

  const join = { what: `join the queue of "${name}"`, host: etcd.member.endpoint, attempts: 1 };
  expect(calls.of("error")).toMatchObject([{ ...join, error: REFUSED }]);

  expect(await outcomes()).toEqual({ error: 1 });
  expect(sdk.spans("leasehold.acquire")).toMatchObject([
    {
      status: { code: SpanStatusCode.ERROR, message: "EtcdRefusedError" },
      attributes: { "leasehold.outcome": "error", "leasehold.label": LABEL },
      events: [{ name: "exception", attributes: { "exception.type": "ETCD_REFUSED" } }],
    },
  ]);
  expect(sdk.spans("leasehold.hold")).toEqual([]);

  const lines = log.all.filter((line) => line.includes(name) && line.includes("not acquired"));
  expect(lines).toHaveLength(1);
  expect(lines[0]).toMatch(/^debug leasehold: mutex "quota\/rejected" not acquired after .* \(error\): /);
  expect(lines[0]).toContain(`refused to join the queue of "${name}" (quota): `);
  expect(lines[0]).toContain("database space exceeded");
  // etcd may have put the key nevertheless.
  await expect.poll(() => placesOf(etcd.member, name)).toEqual([]);
});

test("a lock whose session etcd rejects is an error without an owner, and leaves neither key nor lease", async () => {
  const before = await leasesOf(etcd.member);
  await using late = connect({ hosts: etcd.endpoints });
  using acquisitions = new Traced<AcquireMessage>(acquireChannel);
  using calls = new Traced<CallMessage>(callChannel);

  const error = await reasonOf(new Mutex(late, "quota/late").tryLock());

  expect(error).toMatchObject(REFUSED);
  expect(acquisitions.ended).toMatchObject([{ outcome: "error", owner: undefined, leaseId: undefined }]);
  expect(acquisitions.ended[0]?.error).toBe(error);
  expect(calls.of("error")).toMatchObject([{ what: "grant a lease", error: REFUSED }]);
  expect(await outcomes()).toEqual({ error: 1 });
  await late.close();
  expect(await placesOf(etcd.member, "quota/late")).toEqual([]);
  expect(await leasesOf(etcd.member)).toEqual(before);
});

test("a campaign of lead is repeated, and says why with each event and with one line", async () => {
  const name = "quota/lead";
  using events = new Messages<ElectionMessage>(CHANNELS.election, (message) => message.name === name);
  const stop = new AbortController();

  await using late = connect({ hosts: etcd.endpoints, log });
  const done = lead(late, name, () => undefined, { signal: stop.signal });
  const retry = await events.first(({ state }) => state === "retrying");
  stop.abort();
  await done;

  expect(retry).toMatchObject({ error: REFUSED, fence: undefined });
  expect(retry.delayMs).toBeGreaterThan(0);
  const lines = log.all.filter((line) => line.startsWith("warn ") && line.includes(`election "${name}"`));
  expect(lines).toEqual([expect.stringContaining("a campaign failed (etcd at ")]);
  expect(lines[0]).toContain("(quota)");
});
