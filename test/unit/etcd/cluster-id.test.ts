import { describe, expect, test } from "vitest";
import { ClusterIdentity } from "../../../src/etcd/hosts.js";
import { MemberRefusedError } from "../../../src/etcd/port.js";
import { FakeClock } from "../../support/fakes/fake-clock.js";
import { HEADER } from "../../support/fakes/fake-connection.js";

const header = (clusterId: string) => ({ ...HEADER, clusterId });

function identity(hosts: readonly string[] = []) {
  const clock = new FakeClock();
  const cluster = new ClusterIdentity(clock);
  for (const host of hosts) cluster.check(host, header("10"));
  return { clock, cluster };
}

describe("the identity of the etcd cluster", () => {
  test("is that of the first host that answers; another one is refused, naming both", () => {
    const { cluster } = identity(["a:1"]);

    expect(() => cluster.check("b:1", header("11"))).toThrow(MemberRefusedError);
    expect(() => cluster.check("b:1", header("11"))).toThrow("cluster b, but a:1 to a:");
    expect([cluster.knows("a:1"), cluster.knows("b:1"), cluster.knows("c:1")]).toEqual([true, false, false]);
  });

  test("changes when every host has another one, as after a restore", () => {
    const { cluster } = identity(["a:1", "b:1"]);

    expect(() => cluster.check("a:1", header("11"))).toThrow(MemberRefusedError);
    cluster.check("b:1", header("11"));

    cluster.check("a:1", header("11"));
    expect(cluster.knows("a:1")).toBe(true);
  });

  test("does not stay that of a host that has long been silent, as one that is down since a restore", () => {
    const { clock, cluster } = identity(["c:1"]);
    clock.advance(20_000);
    cluster.check("a:1", header("10"));
    clock.advance(10_001);

    expect(() => cluster.check("b:1", header("11"))).toThrow("a:1");
    cluster.check("a:1", header("11"));
    cluster.check("b:1", header("11"));
  });
});
