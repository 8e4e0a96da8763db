// The behavior of `lead` when etcd refuses a request: it waits for temporary rejections to pass, and ends on permanent
// ones.
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, lead, type Leader, type Leadership, type LeadOptions } from "../../../src/index.js";
import { servicesOf } from "../../../src/lock/session/cluster.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";
import { startTcpProxy } from "../../support/proxies/tcp-proxy.js";
import { reasonOf } from "../../support/fixtures/two-sessions.js";
import { startWithUsers, type UserEtcd, WORKER } from "../../support/fixtures/users.js";

const PATIENCE = { timeout: 20_000 };

type Retried = Parameters<NonNullable<LeadOptions["onRetry"]>>;

/** Work that runs until it is stopped, and reports its terms. */
function untilStopped() {
  const stop = new AbortController();
  const terms: Leadership[] = [];
  const retries: Retried[] = [];
  const work = async (leadership: Leadership) => {
    terms.push(leadership);
    await new Promise((resolve) => stop.signal.addEventListener("abort", resolve));
  };
  const onRetry = (...retried: Retried) => void retries.push(retried);
  return { stop, terms, retries, work, options: { signal: stop.signal, onRetry, ttlSeconds: 10 } };
}

describe("on an etcd that is full", () => {
  let etcd: EtcdCluster;
  beforeAll(async () => void (etcd = await startEtcd()), 60_000);
  afterAll(() => etcd.stop());

  const alarm = async (action: "ACTIVATE" | "DEACTIVATE") => {
    const { header } = (await etcd.member.gateway("/v3/maintenance/status", {})) as {
      header: { member_id: string };
    };
    await etcd.member.gateway("/v3/maintenance/alarm", {
      action,
      memberID: header.member_id,
      alarm: "NOSPACE",
    });
  };

  test.each(["before it has a session", "when it campaigns again"])(
    "lead waits, says so, and leads when there is room again: %s",
    async (when) => {
      await using cluster = connect({ hosts: etcd.endpoints });
      const it = untilStopped();
      const again = when === "when it campaigns again";
      if (!again) await alarm("ACTIVATE");
      const full = async (leadership: Leadership) => {
        if (again && it.terms.length === 0) await alarm("ACTIVATE");
        else return it.work(leadership);
        it.terms.push(leadership);
      };
      const done = lead(cluster, `full/${when}`, full, it.options);
      done.catch(() => {});

      await expect.poll(() => it.retries.length, PATIENCE).toBeGreaterThan(1);
      const before = it.terms.length;
      await alarm("DEACTIVATE");
      await expect.poll(() => it.terms.length, PATIENCE).toBe(before + 1);

      for (const [error, delayMs] of it.retries) {
        expect(error).toMatchObject({ code: "ETCD_REFUSED", reason: "quota" });
        expect(delayMs).toBeGreaterThan(0);
      }
      const delays = it.retries.map(([, delayMs]) => delayMs);
      expect(delays).toEqual(delays.toSorted((a, b) => a - b));
      it.stop.abort();
      await done;
    },
  );
});

describe("with a role that is edited", () => {
  let etcd: UserEtcd;
  beforeAll(async () => void (etcd = await startWithUsers()), 60_000);
  afterAll(() => etcd.stop());

  const edit = (action: "grant" | "revoke", prefix: string) =>
    action === "grant"
      ? etcd.root("role", "grant-permission", WORKER.username, "--prefix=true", "readwrite", prefix)
      : etcd.root("role", "revoke-permission", WORKER.username, "--prefix=true", prefix);

  test("lead leads on though it may not observe any more, says so, and observes again when it may", async () => {
    const name = "observed/by-role";
    await edit("grant", "observed/");
    await using proxy = await startTcpProxy({ port: etcd.etcd.member.clientPort });
    await using cluster = connect({ hosts: proxy.endpoint, auth: WORKER });
    const it = untilStopped();
    const heard: (string | undefined)[] = [];
    const onLeader = (leader: Leader | undefined) => void heard.push(leader?.value);
    const done = lead(cluster, name, it.work, { ...it.options, onLeader, value: "it" });
    done.catch(() => {});
    await expect.poll(() => heard.at(-1), PATIENCE).toBe("it");
    const before = heard.length;

    await edit("revoke", "observed/");
    proxy.reset();
    await expect.poll(() => it.retries.length, PATIENCE).toBeGreaterThan(1);
    expect(it.retries[0]).toMatchObject([{ code: "ETCD_REFUSED", reason: "permission" }, expect.any(Number)]);
    expect(it.terms[0]!.held).toBe(true);
    await edit("grant", "observed/");
    await it.terms[0]!.proclaim("it, seen again");

    await expect.poll(() => heard.at(-1), PATIENCE).toBe("it, seen again");
    expect(heard.slice(before)).toEqual(["it, seen again"]);
    expect(it.terms).toHaveLength(1);
    it.stop.abort();
    await done;
  });

  test("lead ends when its password is wrong by now, also after a session that takes no new entries", async () => {
    const user = { username: "leader", password: "once right" };
    await etcd.addUser(user, "led/");
    await using cluster = connect({ hosts: etcd.endpoints, auth: user });
    const it = untilStopped();
    const term = async (leadership: Leadership) => {
      it.terms.push(leadership);
      const [lease] = servicesOf(cluster).leases;
      await etcd.ask("lease/revoke", { ID: (lease!.leaseId | 1n).toString() });
      await lease!.renewNow();
      await leadership.resign();
      await etcd.ask("auth/user/changepw", { name: user.username, password: "another" });
    };
    const onRetry = () => it.stop.abort();
    const options = { ...it.options, onRetry, ttlSeconds: 20, releaseDelayMs: 1000 };

    const reason = await reasonOf(lead(cluster, "led/once", term, options));

    expect(reason).toMatchObject({ code: "ETCD_REFUSED", reason: "unauthenticated" });
    expect(it.terms).toHaveLength(1);
  });

  test("lead ends when it may not campaign", async () => {
    await using cluster = connect({ hosts: etcd.endpoints, auth: WORKER });
    const it = untilStopped();

    const reason = await reasonOf(lead(cluster, "forbidden", it.work, it.options));

    expect(reason).toMatchObject({ code: "ETCD_REFUSED", reason: "permission" });
    expect(it.retries).toEqual([]);
  });
});
