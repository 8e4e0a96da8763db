// The code of docs/observability.md, run in a project that has only leasehold.
import { afterAll, beforeAll, expect, test } from "vitest";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { buildPackage } from "../../support/fixtures/examples.js";
import { programOf, sectionsOf } from "../../support/fixtures/pages.js";
import { UserProject } from "../../support/fixtures/user-project.js";

let etcd: EtcdCluster;

beforeAll(async () => {
  buildPackage();
  etcd = await startEtcd();
}, 150_000);
afterAll(() => etcd?.stop());

const NAMES = `
import { subscribe } from "node:diagnostics_channel";
import { connect, Mutex } from "leasehold";
import * as diagnostics from "leasehold/diagnostics";
const cluster = connect({ hosts: "" });
const seen: unknown[] = [];
subscribe(diagnostics.CHANNELS.holdEnd, (message) => seen.push((message as diagnostics.HoldEndMessage).reason));
await new Mutex(cluster, "by name").withLock(() => undefined);
await cluster.close();
console.log(JSON.stringify([seen, Object.keys(diagnostics).sort()]));
`;

test("the program of its section Events subscribes as the page says", { timeout: 60_000 }, async () => {
  const section = sectionsOf("docs/observability.md").find(({ title }) => title === "Events");
  using project = new UserProject();
  const program = programOf(section!, etcd.endpoints);

  expect(project.compile(new Map([["events", program]]))).toEqual([]);
  const { code, stdout, stderr } = await project.run("events");

  expect([code, stderr]).toEqual([0, ""]);
  expect(stdout.split("\n")).toEqual([
    expect.stringMatching(/^orders\/:id: granted after [\d.]+ ms$/),
    "working",
    expect.stringMatching(/^orders\/:id: released after [\d.]+ ms$/),
    "",
  ]);
});

test(
  "the entry leasehold/diagnostics has the channels that leasehold publishes to",
  { timeout: 60_000 },
  async () => {
    using project = new UserProject();
    const program = programOf({ title: "", code: NAMES }, etcd.endpoints);

    expect(project.compile(new Map([["names", program]]))).toEqual([]);
    const { stdout, stderr } = await project.run("names");

    expect(stderr).toBe("");
    expect(JSON.parse(stdout)).toEqual([
      ["released"],
      [
        ...["CHANNELS", "acquireChannel", "callChannel", "credentialsChannel", "electionChannel"],
        ...["guardianChannel", "holdEndChannel", "holdLongChannel", "memberChannel", "rejoinChannel"],
        ...["renewedChannel", "sessionChannel", "shardChannel"],
      ],
    ]);
  },
);
