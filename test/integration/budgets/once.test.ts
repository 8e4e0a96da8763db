import { describe, expect, it } from "vitest";
import { catchUp, connect, once, share } from "../../../src/index.js";
import { metered, times } from "../../support/fixtures/metered.js";
import { meter } from "../../support/fixtures/spent.js";

const ROUNDS = 100;

const at = metered();
const nothing = (): undefined => undefined;

describe("what once costs etcd", () => {
  it("to run a slot: two transactions, which take the lock, and mark the run and release", async () => {
    const session = await at.session();
    await once(session, "budget/once", 0, nothing, { keep: 10 });

    const meterOf = await meter(at.etcd.member);
    for (let n = 1; n <= ROUNDS; n++) await once(session, "budget/once", n, nothing, { keep: 10 });

    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 2, revisions: 2 }));
  });

  it("to find that a slot is done, or expired: one transaction, and not one revision", async () => {
    const session = await at.session();
    for (const slot of [1, 2]) await once(session, "budget/done", slot, nothing, { keep: 1 });

    const meterOf = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) {
      expect((await once(session, "budget/done", 1 + (n % 2), nothing)).ran).toBe(false);
    }

    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 1 }));
  });

  it("to find that a slot is running, or that its run was lost: the same", async () => {
    const session = await at.session();
    await once(session, "budget/lost", 1, (lock) => lock.release()).catch(nothing);
    let end: () => void = nothing;
    const running = once(session, "budget/running", 1, () => new Promise<void>((resolve) => (end = resolve)));
    await expect.poll(() => end).not.toBe(nothing);

    // The session watches the key of a hold that lasts.
    const unary = ({ Txn, revisions }: Record<string, number>) => ({ Txn, revisions });
    const meterOf = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++)
      await once(session, n % 2 === 0 ? "budget/lost" : "budget/running", 1, nothing);

    expect(unary(await meterOf.read())).toEqual({ Txn: ROUNDS, revisions: undefined });
    end();
    expect(await running).toMatchObject({ ran: true });
  });

  it("to catch up: one read if all has run, and then two transactions for each run", async () => {
    const session = await at.session();
    const caughtUp = (slots: number) =>
      catchUp(session, "budget/ticks", Array(slots).keys(), nothing, { missed: "all" });
    await caughtUp(3);
    const meterOf = await meter(at.etcd.member);
    await caughtUp(3);
    expect(await meterOf.lap({ Txn: 1 })).toEqual({ Txn: 1 });

    await caughtUp(5);
    const spent = { Txn: 1 + 2 * 2, revisions: 4 };
    expect(await meterOf.lap(spent)).toEqual(spent);
  });

  it('to skip a slot with ifHeld: "skip", whatever else holds: one transaction, and not one revision', async () => {
    const session = await at.session();
    await at.etcd.etcdctl(["put", "budget/skip/1", "held"]);

    const meterOf = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++)
      expect(await once(session, "budget/skip", n, nothing, { ifHeld: "skip" })).toMatchObject({
        reason: "held",
      });

    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 1 }));
  });

  it("to run a lost slot again while nobody holds: one transaction more than to run it the first time", async () => {
    const session = await at.session();
    for (let n = 0; n < ROUNDS; n++)
      await once(session, "budget/again", n, (lock) => lock.release()).catch(nothing);

    const meterOf = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++)
      await once(session, "budget/again", n, nothing, { rerun: "if_lost", ifHeld: n % 2 ? "skip" : "wait" });

    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 3, revisions: 2 }));
  });

  it("to run a slot on a cluster with a prefix: not one request more", async () => {
    await using cluster = connect({ hosts: at.etcd.endpoints, prefix: "prod/" });
    const session = await at.session(cluster);
    await once(session, "budget/prefix", 0, nothing);

    const meterOf = await meter(at.etcd.member);
    for (let n = 1; n <= ROUNDS; n++) await once(session, "budget/prefix", n, nothing);

    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 2, revisions: 2 }));
  });

  const KEEPS = { result: "keep", keep: { ms: 600_000 } } as const;

  it("to run a string and keep its result: the two transactions of a slot, and leases for all of the next minutes", async () => {
    await using cluster = connect({ hosts: at.etcd.endpoints });
    const session = await at.session(cluster);
    const meterOf = await meter(at.etcd.member);
    await once(session, "budget/texts", "first", () => 1, KEEPS);
    // The marks of runs that begin have one, and those of runs that have ended. A read shows first that it's needed.
    expect(await meterOf.lap({ Txn: 3 })).toEqual({ LeaseGrant: 2, Txn: 3, revisions: 2 });

    for (let n = 0; n < ROUNDS; n++) await once(session, "budget/texts", `${n}`, () => n, KEEPS);
    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 2, revisions: 2 }));
  });

  it("to get a result that is kept, or to find another request: one transaction, and not one revision", async () => {
    const session = await at.session();
    await once(session, "budget/replay", "a", () => 1, { ...KEEPS, fingerprint: "a" });
    const meterOf = await meter(at.etcd.member);
    for (let n = 0; n < ROUNDS; n++) {
      const call = once(session, "budget/replay", "a", nothing, { ...KEEPS, fingerprint: n % 2 ? "a" : "b" });
      await call.catch((error: { readonly code: string }) => expect(error.code).toBe("FINGERPRINT_MISMATCH"));
    }

    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 1 }));
  });

  it("to wait for a string that is running: two transactions and a watch", async () => {
    const session = await at.session();
    let end: (value: string) => void = nothing;
    const work = () => new Promise<string>((resolve) => (end = resolve));
    // The call that runs it watches its own key, after a second.
    const running = once(session, "budget/waits", "a", work, KEEPS);
    await expect.poll(() => end).not.toBe(nothing);
    const meterOf = await meter(at.etcd.member);
    const waiting = once(session, "budget/waits", "a", nothing, { ...KEEPS, ifRunning: "wait" });
    const wait = await meterOf.lap({ Txn: 1, Watch: 1 });
    end("result");

    expect(await waiting).toMatchObject({ result: "result", replayed: true });
    await running;
    expect(wait).toMatchObject({ Txn: 1 });
    const { Txn } = await meterOf.read();
    // That of the run, which ends it, and that of the wait.
    expect(Txn).toBe(2);
  });

  it("to share a value that is fresh: one read", async () => {
    const session = await at.session();
    await share(session, "budget/share", () => 1, { ttlMs: 600_000 });
    const meterOf = await meter(at.etcd.member);
    // Two keys at one revision.
    for (let n = 0; n < ROUNDS; n++) await share(session, "budget/share", nothing, { ttlMs: 600_000 });
    expect(await meterOf.read()).toEqual(times(ROUNDS, { Txn: 1 }));
  });

  it("to run a slot behind a holder: one transaction more than the wait of a Mutex and the run", async () => {
    const session = await at.session();
    await once(session, "budget/behind", 1, nothing);
    // Another client's place: a hold of this one would begin to watch its key after a second.
    await at.etcd.etcdctl(["put", "budget/behind/1", "held"]);
    const meterOf = await meter(at.etcd.member);

    const waiting = once(session, "budget/behind", 2, nothing);
    // It tries, and then waits as a Mutex does.
    const wait = { Txn: 2, Range: 1, Watch: 1, revisions: 1 };
    expect(await meterOf.lap(wait)).toEqual(wait);
    await at.etcd.etcdctl(["del", "budget/behind/1"]);
    expect(await waiting).toMatchObject({ ran: true });

    // The mark of the wait; the mark of the run, with the release.
    expect(await meterOf.read()).toEqual({ DeleteRange: 1, Txn: 2, revisions: 3 });
  });
});
