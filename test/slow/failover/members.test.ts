import { describe, expect, test } from "vitest";
import { connect, type Lock, Mutex, Session } from "../../../src/index.js";
import type { EtcdMember } from "../../support/etcd/etcd.js";
import { threeMembers } from "../../support/fixtures/three-members.js";
import { linkTo, type MemberLinks } from "../../support/proxies/member-links.js";
import { placesOf } from "../../support/clients/server-view.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";

const TTL_SECONDS = 5;
const TTL_MS = TTL_SECONDS * 1000;

/** A session of a separate client, and every state that it has had. */
async function openSession(hosts: string | string[], ttlSeconds: number) {
  const cluster = connect({ hosts });
  const session = await Session.open(cluster, { ttlSeconds });
  const states: string[] = [];
  session.addEventListener("statechange", ({ state }) => states.push(state));
  return { cluster, session, states };
}

describe("with three members", { timeout: 60_000 }, () => {
  const three = threeMembers();

  /** One client holds `name`; another waits for it. */
  async function contend(name: string, hosts: (string | string[])[], ttlSeconds = TTL_SECONDS) {
    const [holderHosts = "", waiterHosts = ""] = hosts;
    const holder = await openSession(holderHosts, ttlSeconds);
    const waiter = await openSession(waiterHosts, ttlSeconds);
    const lock = await new Mutex(holder.session, name).lock();
    const next = new Mutex(waiter.session, name).lock();
    next.catch(() => {});
    await expect.poll(() => placesOf(three.etcd.member, name).catch(() => [])).toHaveLength(2);
    const close = async () => {
      await Promise.all([holder, waiter].map(({ cluster }) => cluster.close({ drainMs: 0 })));
    };
    return { holder, waiter, lock, next, [Symbol.asyncDispose]: close };
  }
  type Contest = Awaited<ReturnType<typeof contend>>;

  /**
   * After the current fault, the lock changes hands within a TTL, both sessions are renewed, and neither is lost in
   * between.
   */
  async function expectLifeGoesOn({ holder, waiter, lock, next }: Contest) {
    const start = performance.now();
    const deadline = (session: Session) => performance.now() + session.remainingMs();
    await lock.release();
    const taken: Lock = await next;

    expect(performance.now() - start).toBeLessThan(TTL_MS);
    expect(taken.fence).toBeGreaterThan(lock.fence);
    for (const { session, states } of [holder, waiter]) {
      // Later than a renewal sent before the fault could have moved it.
      await expect.poll(() => deadline(session), { timeout: TTL_MS }).toBeGreaterThan(start + 0.9 * TTL_MS);
      await expect.poll(() => session.state, { timeout: TTL_MS }).toBe("live");
      expect(states).not.toContain("lost");
    }
    expect(taken.held).toBe(true);
    await taken.release();
  }

  const faults: Record<string, (member: EtcdMember, links: MemberLinks[]) => unknown> = {
    paused: (member) => member.pause(),
    "cut off": (member, links) => Promise.all(links.map((each) => each.cut(member))),
  };

  test.for(Object.entries(faults))(
    "a member that is %s while in use costs neither session nor turn",
    async ([name, fault]) => {
      const member = await three.follower();
      await using holderLinks = await linkTo(three.etcd.members, member);
      await using waiterLinks = await linkTo(three.etcd.members, member);
      await using contest = await contend(`member-${name}`, [holderLinks.hosts, waiterLinks.hosts]);
      expect([...holderLinks.inUse, ...waiterLinks.inUse]).toEqual([member, member]);

      await fault(member, [holderLinks, waiterLinks]);

      await expectLifeGoesOn(contest);
      expect([...holderLinks.inUse, ...waiterLinks.inUse]).not.toEqual([member, member]);
    },
  );

  test("a member cut off from its peers leaves no waiter silent, long before a renewal would tell", async () => {
    const member = await three.follower();
    const others = three.etcd.members.filter((other) => other !== member).map((other) => other.endpoint);
    const ttlSeconds = 6 * TTL_SECONDS;
    await using waiterLinks = await linkTo(three.etcd.members, member);
    await using contest = await contend("lonely-member", [others, waiterLinks.hosts], ttlSeconds);
    expect(waiterLinks.inUse).toEqual([member]);

    await three.network.cutOff(three.etcd.members, member);
    const start = performance.now();
    await contest.lock.release();
    const taken = await contest.next;

    // A third of the TTL is the time from one renewal to the next.
    expect(performance.now() - start).toBeLessThan((ttlSeconds * 1000) / 4);
    expect(taken.held).toBe(true);
    expect(contest.waiter.states).not.toContain("lost");
    await taken.release();
  });

  test("three members behind one address serve on when the one behind the streams stands still", async () => {
    const member = await three.follower();
    const backends = [member, ...three.etcd.members.filter((other) => other !== member)];
    const targets = backends.map((backend) => ({ port: backend.clientPort }));
    await using holderSide = await startTcpProxy(targets);
    await using waiterSide = await startTcpProxy(targets);
    await using contest = await contend("one-address", [holderSide.endpoint, waiterSide.endpoint]);
    const inUse = () => [holderSide, waiterSide].map((side) => side.connections.map((it) => it.backend));
    expect(inUse()).toEqual([[0], [0]]);

    member.pause();

    await expectLifeGoesOn(contest);
    expect(holderSide.accepted).toBeGreaterThan(1);
    expect(waiterSide.accepted).toBeGreaterThan(1);
  });
});
