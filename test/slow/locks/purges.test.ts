// One revision can end a whole queue: `etcdctl del --prefix`, or a lease with several keys that is revoked. The predecessor's end,
// which a waiter watches for, must grant nothing to a waiter whose own key ended with it.
// LEASEHOLD_PURGES=170 npm test -- test/slow/locks/purges: 1,020 of each, instead of 30.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Cluster, connect, Session } from "../../../src/index.js";
import { encode, endOf } from "../../support/clients/gateway-text.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { placesOf } from "../../support/clients/server-view.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { keyOf, slug, type Subject, SUBJECTS, titled } from "../../support/fixtures/subjects.js";

const ROUNDS = Number(process.env["LEASEHOLD_PURGES"] ?? 5);
const WAITERS = 5;
const TTL_SECONDS = 600;

let etcd: EtcdCluster;
let clusters: Cluster[];
let sessions: Session[];

beforeAll(async () => {
  etcd = await startEtcd();
  clusters = [0, 1].map(() => connect({ hosts: etcd.endpoints }));
  sessions = await Promise.all(Array.from({ length: WAITERS }, (_, n) => open(n)));
});
afterAll(async () => {
  await Promise.all(clusters.map((cluster) => cluster.close()));
  await etcd.stop();
});

const open = (n = 0) => Session.open(clusters[n % 2]!, { ttlSeconds: TTL_SECONDS });
const keysUnder = async (name: string) => (await placesOf(etcd.member, name)).map(({ key }) => key);
const joined = (name: string, count: number) =>
  expect.poll(() => keysUnder(name), { interval: 2, timeout: 20_000 }).toHaveLength(count);

/** Waits with `session`, and releases when it holds. Returns whether etcd had the key of the hold. */
async function turn(subject: Subject, session: Session, name: string): Promise<boolean> {
  const hold = await subject.take(session, name);
  const there = (await keysUnder(name)).includes(keyOf(hold));
  await reasonOf(subject.release(hold));
  return there;
}

describe.each(titled(SUBJECTS))("%s", (_, subject) => {
  it("is granted to no waiter whose key was deleted together with those before it", async () => {
    const granted: boolean[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const name = `purges/${slug(subject.what)}/${round}`;
      const holder = await subject.block(sessions[0]!, name);
      const turns: Promise<boolean>[] = [];
      for (const session of sessions.slice(1)) {
        turns.push(turn(subject, session, name));
        await joined(name, 1 + turns.length);
      }
      await etcd.member.gateway("/v3/kv/deleterange", {
        key: encode(`${name}/`),
        range_end: encode(endOf(`${name}/`)),
      });
      granted.push(...(await Promise.all(turns)));
      await reasonOf(holder.release());
    }
    expect(granted.filter((there) => !there)).toHaveLength(0);
    expect(granted).toHaveLength(ROUNDS * (WAITERS - 1));
  }, 300_000);

  it("is granted to no waiter whose session lost the lease of the hold before it", async () => {
    const granted: boolean[] = [];
    let rejected = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const name = `revokes/${slug(subject.what)}/${round}`;
      const both = await open(round);
      const holder = await subject.block(both, name);
      // It may reject before the others have joined.
      const turns = [turn(subject, both, name)];
      turns[0]!.catch(() => undefined);
      await joined(name, 2);
      turns.push(turn(subject, sessions[0]!, name));
      await joined(name, 3);
      await revoke(etcd.member, both.leaseId);
      for (const result of await Promise.allSettled(turns)) {
        if (result.status === "fulfilled") granted.push(result.value);
        else rejected++;
      }
      await reasonOf(holder.release());
      await both.close();
    }
    expect(granted.filter((there) => !there)).toHaveLength(0);
    expect({ granted: granted.length, rejected }).toEqual({ granted: ROUNDS, rejected: ROUNDS });
  }, 300_000);
});
