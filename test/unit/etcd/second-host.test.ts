import { beforeEach, describe, expect, test } from "vitest";
import { UnansweredError } from "../../../src/etcd/port.js";
import { SecondHost } from "../../../src/etcd/second-host.js";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import type { MemberMessage } from "../../../src/base/telemetry/messages.js";
import { FakeCluster, HEADER } from "../../support/fakes/fake-connection.js";
import { Messages } from "../../support/fixtures/messages.js";

const SOON_MS = 1000;
const ANSWER = { header: HEADER, kvs: [], more: false };

let cluster: FakeCluster;
/** The cluster of each host; undefined: it does not answer. */
let clusterOf: (host: string) => string | undefined;
let second: SecondHost;

beforeEach(() => {
  cluster = new FakeCluster();
  clusterOf = () => HEADER.clusterId;
  cluster.onCall = (call, host) => {
    const clusterId = clusterOf(host);
    if (clusterId === undefined) call.fail(new UnansweredError("silent"));
    else call.answer({ ...ANSWER, header: { ...HEADER, clusterId } });
  };
  second = new SecondHost(cluster.client, cluster.clock);
});

const read = () => cluster.client.range({ key: "a" }, { what: "test", giveUpMs: 1000 });
const asked = () => cluster.connected.map(({ host }) => host);

describe("a second host is asked for its cluster", () => {
  test("once, a second after the first answer, over a connection that is closed then", async () => {
    await read();
    await cluster.clock.pass(SOON_MS - 1);
    expect(asked()).toHaveLength(1);

    await cluster.clock.pass(1);
    expect(new Set(asked()).size).toBe(2);
    expect(cluster.member.retired).toBe(true);
    await read();
    await cluster.clock.pass(60_000);
    expect(asked()).toHaveLength(2);
  });

  test("and is refused, before any call goes there, if that is another one", async () => {
    using members = new Messages<MemberMessage>(
      CHANNELS.member,
      ({ hosts }) => hosts === cluster.client.hosts.names,
    );
    await read();
    const first = cluster.member.host;
    clusterOf = (host) => (host === first ? HEADER.clusterId : "2");
    await cluster.clock.pass(SOON_MS);

    expect(members.all.map(({ state }) => state)).toEqual(["up", "refused"]);
    expect(members.all[1]?.error?.message).toContain("belongs to the etcd cluster 2");
    expect(cluster.client.hosts.lastContactFailed).toBe(false);
  });

  test("again after a fail-over, if it has not answered", async () => {
    await read();
    clusterOf = () => undefined;
    await cluster.clock.pass(SOON_MS);
    const before = asked().length;
    clusterOf = () => HEADER.clusterId;
    cluster.client.pool.fail(cluster.client.pool.current);
    await read();

    await cluster.clock.pass(SOON_MS);
    expect(asked()).toHaveLength(before + 2);
  });

  test("never after the end", async () => {
    await read();
    second.close();
    await cluster.clock.pass(60_000);
    expect(asked()).toHaveLength(1);
  });
});
