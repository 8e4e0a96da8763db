// A leader hands over to the candidate of its choice. Who led is judged by etcd's history of the queue.
import { describe, expect, test } from "vitest";
import {
  type Cluster,
  connect,
  Election,
  lead,
  type Leader,
  type Leadership,
  Session,
  type TransferTarget,
} from "../../../src/index.js";
import { revoke } from "../../support/clients/lease-calls.js";
import { oldestSince, revisionOf } from "../../support/clients/oldest-keys.js";
import { givesBack, takesPlace, txnShape } from "../../support/clients/request-shape.js";
import { abortOf, queued as joined } from "../../support/clients/session-client.js";
import { V3Candidate } from "../../support/clients/v3election.js";
import { type Candidate, Crew } from "../../support/fixtures/candidates.js";
import { reasonOf, twoSessions } from "../../support/fixtures/two-sessions.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";

const TXN = "/etcdserverpb.KV/Txn";
const PATIENCE = { timeout: 10_000 };

const two = twoSessions(20);
const { places } = two;
const queued = (name: string, count: number) => joined(two.etcd.member, name, count);

const crewOf = (name: string) => new Crew(two, name);
/** The candidates a, b, c, d and e; a leads. */
async function five(name: string) {
  const crew = crewOf(name);
  for (const owner of ["a", "b", "c", "d", "e"]) await crew.join(owner);
  const leadership = await crew.all[0]!.elected;
  const dispose = () => crew[Symbol.asyncDispose]();
  return { crew, leadership, from: await revisionOf(two.etcd.member), [Symbol.asyncDispose]: dispose };
}
const at = (crew: Crew, owner: string): Candidate => crew.all.find((each) => each.owner === owner)!;
const history = (name: string, from: bigint) => oldestSince(two.etcd.member, name, from);

/** A leader behind a proxy, and candidates on a direct way. */
async function behindProxy(name: string) {
  const proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
  const cluster = connect({ hosts: proxy.endpoint });
  const crew = crewOf(name);
  await crew.join("a", undefined, { cluster });
  for (const owner of ["b", "c"]) await crew.join(owner);
  const leadership = await crew.all[0]!.elected;
  const dispose = async () => {
    await crew[Symbol.asyncDispose]();
    await cluster.close({ drainMs: 0 });
    await proxy.stop();
  };
  return { proxy, crew, leadership, [Symbol.asyncDispose]: dispose };
}

describe("a leader that transfers its leadership", () => {
  test("makes the named candidate of five the next one, by one hand-over; those before it wait behind the others", async () => {
    const name = "transfer/five";
    await using it = await five(name);
    const { crew, leadership, from } = it;

    await leadership.transfer("d");
    const next = await at(crew, "d").elected;

    expect(await history(name, from)).toEqual([leadership.fence, next.fence]);
    expect(next.fence > leadership.fence).toBe(true);
    expect(leadership.signal.reason).toMatchObject({ code: "LOCK_RELEASED" });
    expect([leadership.held, crew.leading]).toEqual([false, ["d"]]);
    await queued(name, 4);
    const [first, second, ...moved] = await crew.order();
    expect([first, second, moved.toSorted()]).toEqual(["d", "e", ["b", "c"]]);
    // Those that have moved are candidates as before.
    await next.transfer("c");
    expect((await at(crew, "c").elected).fence > next.fence).toBe(true);
  });

  test("sends one transaction for that", async () => {
    await using it = await behindProxy("transfer/one");
    const sent = it.proxy.rule({ path: TXN, act: "delay", ms: 0, when: givesBack });

    await it.leadership.transfer("c");
    await at(it.crew, "c").elected;

    expect(sent.hits).toBe(1);
  });

  test.each<[string, (candidate: Candidate) => Promise<TransferTarget>]>([
    ["the owner of its session", async ({ owner }) => Promise.resolve(owner)],
    [
      "one of `candidates()`",
      async ({ election, session }) =>
        (await election.candidates()).find(({ leaseId }) => leaseId === session.leaseId)!,
    ],
  ])("names it by %s", async (by, targetOf) => {
    await using crew = crewOf(`transfer/named by ${by}`);
    for (const owner of ["a", "b", "c"]) await crew.join(owner);

    await (await at(crew, "a").elected).transfer(await targetOf(at(crew, "c")));
    await at(crew, "c").elected;

    expect(crew.leading).toEqual(["c"]);
  });

  test("leads on when the candidate is dead, left or never was, and nothing has been written", async () => {
    const name = "transfer/dead";
    await using it = await five(name);
    const { crew, leadership } = it;
    const [dead] = await at(crew, "d")
      .election.candidates()
      .then((all) => all.slice(3));
    await revoke(two.etcd.member, at(crew, "d").session.leaseId);
    at(crew, "c").stop.abort();
    await queued(name, 3);
    const revision = await revisionOf(two.etcd.member);

    for (const to of ["c", "d", dead!, "nobody"])
      expect(await reasonOf(leadership.transfer(to))).toMatchObject({
        name: "TransferError",
        code: "TRANSFER_REFUSED",
        reason: "not_found",
        resigned: false,
      });
    expect(await reasonOf(leadership.transfer("a"))).toMatchObject({ reason: "is_leader" });

    expect([leadership.held, leadership.signal.aborted]).toEqual([true, false]);
    expect(await revisionOf(two.etcd.member)).toBe(revision);
    await leadership.transfer("e");
    expect((await at(crew, "e").elected).held).toBe(true);
  });

  test("has resigned when the candidate leaves after the check: the next one in the queue leads", async () => {
    await using it = await behindProxy("transfer/leaves");
    const held = it.proxy.rule({ path: TXN, act: "hold", when: givesBack, times: 1 });
    const transferring = reasonOf(it.leadership.transfer("c"));
    await held.hit();
    at(it.crew, "c").stop.abort();
    await queued("transfer/leaves", 2);

    held.release();

    expect(await transferring).toMatchObject({
      code: "TRANSFER_REFUSED",
      reason: "not_found",
      resigned: true,
    });
    expect((await at(it.crew, "b").elected).held).toBe(true);
    expect(it.crew.leading).toEqual(["b"]);
  });

  describe("to a candidate of a lower priority", () => {
    async function ranked(name: string, options: { readonly cluster?: Cluster } = {}) {
      const crew = crewOf(name);
      await crew.join("a", { priority: 9 }, options);
      const leadership = await crew.all[0]!.elected;
      for (const [owner, priority] of [
        ["high", 5],
        ["low", 0],
        ["higher", 7],
      ] as const)
        await crew.join(owner, { priority, eligible: (candidate) => candidate.owner !== "low" });
      return { crew, leadership, [Symbol.asyncDispose]: () => crew[Symbol.asyncDispose]() };
    }

    test("makes that one the next leader, for this turn, with what it said and may say", async () => {
      const name = "transfer/ranked";
      await using it = await ranked(name);
      const { crew, leadership } = it;
      const from = await revisionOf(two.etcd.member);
      const observer = new Election(two.cluster, name).observe();
      const seen: unknown[] = [((await observer.next()).value as Leader).value];
      const second = observer.next();

      await leadership.transfer("low");
      const next = await at(crew, "low").elected;
      seen.push(((await second).value as Leader).value);
      const third = observer.next();
      await next.proclaim("low, still");
      seen.push(((await third).value as Leader).value);

      expect(await history(name, from)).toEqual([leadership.fence, next.fence]);
      expect([crew.leading, seen]).toEqual([["low"], ["a", "low", "low, still"]]);
      const [leader] = await crew.all[0]!.election.candidates();
      expect(leader).toMatchObject({ owner: "low", priority: 0, leads: true });
      await next.resign();
      expect((await at(crew, "higher").elected).held).toBe(true);
      await observer.return?.();
    });

    test("makes that one the first if etcd rejects the put of its key, and the priorities decide", async () => {
      await using proxy = await startGrpcProxy({ port: two.etcd.member.clientPort });
      await using cluster = connect({ hosts: proxy.endpoint });
      await using it = await ranked("transfer/unmarked", { cluster });
      const status = { code: 7, details: "etcdserver: permission denied" };
      const marks = (request: Buffer) => givesBack(request) && takesPlace(request);
      const rule = proxy.rule({ path: TXN, act: "refuse", when: marks, status });

      await it.leadership.transfer("low");

      expect((await at(it.crew, "higher").elected).held).toBe(true);
      expect([rule.hits, it.crew.leading]).toEqual([1, ["higher"]]);
    });
  });

  test("has resigned when etcd rejects the hand-over: the next one in the queue leads", async () => {
    await using it = await behindProxy("transfer/refused");
    const status = { code: 3, details: "etcdserver: too many operations in txn request" };
    // What only leaves reads nothing.
    const handsOver = (request: Buffer) => givesBack(request) && txnShape(request).failure.has("range");
    it.proxy.rule({ path: TXN, act: "refuse", when: handsOver, status });

    const transferring = reasonOf(it.leadership.transfer("c"));

    expect((await at(it.crew, "b").elected).held).toBe(true);
    expect(await transferring).toMatchObject({
      code: "ETCD_REFUSED",
      message: expect.stringMatching(/hand over "transfer\/refused" .*too many operations/) as string,
    });
    expect([it.leadership.held, it.crew.leading]).toEqual([false, ["b"]]);
  });

  test("hands over all the same when one before the candidate leaves after the check", async () => {
    await using it = await behindProxy("transfer/between");
    const held = it.proxy.rule({ path: TXN, act: "hold", when: givesBack, times: 1 });
    const transferring = it.leadership.transfer("c");
    await held.hit();
    at(it.crew, "b").stop.abort();
    await queued("transfer/between", 2);

    held.release();
    await transferring;

    expect((await at(it.crew, "c").elected).held).toBe(true);
  });

  test.each(["drop-answer", "cut-answer", "drop-request", "repeat"] as const)(
    "never leads beside its successor when its transaction meets %s",
    async (act) => {
      const name = `transfer/lost/${act}`;
      await using it = await behindProxy(name);
      const from = await revisionOf(two.etcd.member);
      const rule = it.proxy.rule({ path: TXN, act, when: givesBack, times: 1 });
      let aborted = false;
      it.leadership.signal.addEventListener("abort", () => (aborted = true));

      const transferring = it.leadership.transfer("c");
      await rule.hit();
      expect([it.leadership.held, aborted]).toEqual([false, true]);
      const next = await at(it.crew, "c").elected;
      await transferring;

      expect(await history(name, from)).toEqual([it.leadership.fence, next.fence]);
      expect(it.crew.leading).toEqual(["c"]);
      await queued(name, 2);
    },
  );

  test("has resigned when the answer to its transaction is lost, and its successor has left before the next attempt", async () => {
    await using it = await behindProxy("transfer/lost-and-left");
    const rule = it.proxy.rule({ path: TXN, act: "drop-answer", when: givesBack, times: 1 });

    const transferring = it.leadership.transfer("c");
    await rule.hit();
    await (await at(it.crew, "c").elected).resign();
    await transferring;

    expect((await at(it.crew, "b").elected).held).toBe(true);
  });

  test("does not pass over a candidate of Go's client, whose key stays, and leads on", async () => {
    const name = "transfer/go";
    await using crew = crewOf(name);
    await crew.join("a");
    const go = await V3Candidate.campaign(two.etcd.member, name, "go's");
    await queued(name, 2);
    const stop = new AbortController();
    const last = await Session.open(two.cluster, { ttlSeconds: 20, owner: "z" });
    const elected = new Election(last, name).campaign("z", { transferable: true, signal: stop.signal });
    await queued(name, 3);
    const leadership = await at(crew, "a").elected;
    const [, goes] = await places(name);

    expect(await reasonOf(leadership.transfer("z"))).toMatchObject({ reason: "blocked", key: goes!.key });
    const [, candidate] = await new Election(two.cluster, name).candidates();
    expect(candidate).toMatchObject({ value: "go's", transferable: false, owner: undefined });
    expect(await reasonOf(leadership.transfer(candidate!))).toMatchObject({ reason: "not_transferable" });

    expect([leadership.held, go.leads]).toEqual([true, false]);
    expect(await places(name)).toContainEqual(goes);
    await go.revoke();
    await queued(name, 2);
    await leadership.transfer("z");
    expect((await elected).held).toBe(true);
    await last.close({ drainMs: 0 });
  });

  test("does not pass over a plain candidate, which it cannot tell from another client's", async () => {
    await using crew = crewOf("transfer/plain");
    await crew.join("a");
    await crew.join("plain", {});
    await crew.join("c");
    const leadership = await at(crew, "a").elected;

    expect(await reasonOf(leadership.transfer("plain"))).toMatchObject({ reason: "not_found" });
    expect(await reasonOf(leadership.transfer("c"))).toMatchObject({ reason: "blocked" });
    expect(crew.leading).toEqual(["a"]);
  });

  test("need not be transferable itself", async () => {
    await using crew = crewOf("transfer/by-plain");
    await crew.join("a", {});
    await crew.join("b");
    await crew.join("c");

    await (await at(crew, "a").elected).transfer("c");

    expect((await at(crew, "c").elected).held).toBe(true);
  });

  test("leaves no delay key of sessions with `releaseDelayMs` before the candidate", async () => {
    const name = "transfer/delayed";
    await using crew = crewOf(name);
    for (const owner of ["a", "b", "c"]) await crew.join(owner, undefined, { releaseDelayMs: 60_000 });
    const from = await revisionOf(two.etcd.member);
    const leadership = await at(crew, "a").elected;

    await leadership.transfer("c");
    const next = await at(crew, "c").elected;

    expect(await history(name, from)).toEqual([leadership.fence, next.fence]);
    await queued(name, 4);
    expect(await crew.order()).toEqual(["c", "b"]);
  });

  test("hands over among candidates of its own session", async () => {
    const name = "transfer/own";
    const session = await Session.open(two.cluster, { ttlSeconds: 20, owner: "all" });
    const elections = ["1", "2", "3", "4"].map((value) => ({ value, election: new Election(session, name) }));
    const elected: Promise<Leadership>[] = [];
    for (const { value, election } of elections) {
      elected.push(election.campaign(value, { transferable: true }));
      elected.at(-1)!.catch(() => undefined);
      await queued(name, elected.length);
    }
    const all = await elections[0]!.election.candidates();

    await (await elected[0]!).transfer(all[2]!);

    expect((await elected[2]!).held).toBe(true);
    await queued(name, 3);
    const values = (await elections[0]!.election.candidates()).map(({ value }) => value);
    expect(values).toEqual(["3", "4", "2"]);
    await session.close({ drainMs: 0 });
  });

  test("passes over more candidates than one transaction can move", async () => {
    const name = "transfer/crowd";
    await using crew = crewOf(name);
    await crew.join("a");
    const crowd = await Session.open(two.cluster, { ttlSeconds: 20, owner: "crowd" });
    const waiting = Array.from({ length: 90 }, (_, n) =>
      reasonOf(new Election(crowd, name).campaign(`${n}`, { transferable: true })),
    );
    await queued(name, 91);
    const last = await Session.open(two.cluster, { ttlSeconds: 20, owner: "last" });
    const elected = new Election(last, name).campaign("last", { transferable: true });
    await queued(name, 92);
    const from = await revisionOf(two.etcd.member);
    const leadership = await at(crew, "a").elected;

    await leadership.transfer("last");
    const next = await elected;

    expect((await history(name, from)).slice(0, 2)).toEqual([leadership.fence, next.fence]);
    await queued(name, 91);
    await Promise.all([crowd.close({ drainMs: 0 }), last.close({ drainMs: 0 })]);
    await Promise.all(waiting);
  });

  test("is heard of by observers as one change, with no vacancy", async () => {
    const name = "transfer/observed";
    await using it = await five(name);
    const { crew, leadership } = it;
    const observer = new Election(two.cluster, name).observe();
    const seen: (Leader | undefined)[] = [(await observer.next()).value as Leader];
    const second = observer.next();

    await leadership.transfer("d");
    await at(crew, "d").elected;
    seen.push((await second).value as Leader);
    await (await at(crew, "d").elected).resign();
    seen.push((await observer.next()).value as Leader);

    expect(seen.map((leader) => leader?.value)).toEqual(["a", "d", "e"]);
    await observer.return?.();
  });

  test("is refused when it no longer leads, and for what names nobody", async () => {
    await using crew = crewOf("transfer/misuse");
    await crew.join("a");
    const leadership = await at(crew, "a").elected;
    for (const to of [undefined, 7, null, {}, { key: "k" }, { key: "k", revision: 1 }])
      expect(await reasonOf(leadership.transfer(to as unknown as TransferTarget))).toBeInstanceOf(TypeError);
    expect(await reasonOf(leadership.transfer("é".repeat(200)))).toBeInstanceOf(RangeError);
    expect(await reasonOf(leadership.transfer("b", { timeout: 1 } as object))).toBeInstanceOf(TypeError);
    const reason = new Error("enough");
    expect(await reasonOf(leadership.transfer("b", { signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(leadership.held).toBe(true);

    await leadership.resign();

    expect(await reasonOf(leadership.transfer("b"))).toMatchObject({ code: "LOCK_RELEASED" });
  });

  test("does nothing when etcd does not answer the check in time", async () => {
    await using it = await behindProxy("transfer/slow");
    const rule = it.proxy.rule({ path: TXN, act: "drop-request" });
    const other = it.proxy.rule({ path: "/etcdserverpb.KV/Range", act: "drop-request" });

    expect(await reasonOf(it.leadership.transfer("c", { timeoutMs: 300 }))).toMatchObject({
      code: "ETCD_UNAVAILABLE",
    });

    it.proxy.remove(rule);
    it.proxy.remove(other);
    expect(it.leadership.held).toBe(true);
    await it.leadership.transfer("c");
    expect((await at(it.crew, "c").elected).held).toBe(true);
  });

  test("says in an adopted session what it said before, leads on there, and transfers", async () => {
    const name = "transfer/adopted";
    const session = await Session.open(two.cluster, { ttlSeconds: 20, owner: "a" });
    const says = { priority: -5, labels: { zone: "x" } };
    const before = await new Election(session, name).campaign("a", says);
    const last = await Session.open(two.cluster, { ttlSeconds: 20, owner: "c" });
    const elected = new Election(last, name).campaign("c", { priority: 5 });
    await queued(name, 2);
    const adopted = await Session.adopt(two.cluster, await session.orphan());

    const after = await new Election(adopted, name).campaign("a", { priority: 0 });
    const [leader] = await new Election(two.cluster, name).candidates();
    expect([after.fence, leader]).toMatchObject([before.fence, { leads: true, owner: "a", ...says }]);
    await after.transfer("c");

    expect((await elected).held).toBe(true);
    // Nothing is left of it.
    await queued("/leasehold/candidates/transfer/adopted", 1);
    await Promise.all([adopted, last].map((it) => it.close({ drainMs: 0 })));
  });
});

describe("lead() whose leadership is transferred", () => {
  /** A service whose work ends when the test says so. */
  function service(name: string, options: Parameters<typeof lead>[3], settle?: (term: Leadership) => void) {
    const stop = new AbortController();
    const terms: { leadership: Leadership; end: () => void; fail: (error: unknown) => void }[] = [];
    const work = (leadership: Leadership) =>
      new Promise<void>((resolve, reject) => {
        terms.push({ leadership, end: resolve, fail: reject });
        settle?.(leadership);
      });
    const done = lead(two.cluster, name, work, { ttlSeconds: 20, signal: stop.signal, ...options });
    const dispose = async () => {
      stop.abort();
      terms.forEach(({ end }) => end());
      await done;
    };
    return { stop, done, terms, [Symbol.asyncDispose]: dispose };
  }

  test("aborts the signal of the work, hands over when the work has ended, and campaigns again", async () => {
    const name = "transfer/lead";
    await using a = service(name, { owner: "a", transferable: true });
    await expect.poll(() => a.terms.length, PATIENCE).toBe(1);
    await using b = service(name, { owner: "b", transferable: true });
    await queued(name, 2);
    await using c = service(name, { owner: "c", transferable: true });
    await queued(name, 3);
    const { leadership, end } = a.terms[0]!;
    const before = await places(name);

    await leadership.transfer("c");

    expect(await abortOf(leadership.signal)).toMatchObject({ code: "LOCK_RELEASED" });
    // Its work goes on, and its key stays.
    expect(await places(name)).toEqual(before);
    expect([leadership.held, c.terms.length]).toEqual([false, 0]);
    end();
    await expect.poll(() => c.terms.length, PATIENCE).toBe(1);
    expect(c.terms[0]!.leadership.fence > leadership.fence).toBe(true);
    // b has moved, and a campaigns again.
    await queued(name, 3);
    expect(b.terms).toHaveLength(0);
    await c.terms[0]!.leadership.transfer("a");
    c.terms[0]!.end();
    await expect.poll(() => a.terms.length, PATIENCE).toBe(2);
  });

  test.each<[string, (leadership: Leadership) => unknown]>([
    ["the reason of its signal", ({ signal }) => signal.reason as Error],
    ["an AbortError", () => new DOMException("stopped", "AbortError")],
  ])("goes on when the work answers with %s", async (_, errorOf) => {
    const name = `transfer/lead-throws/${_}`;
    await using a = service(name, { owner: "a" });
    await expect.poll(() => a.terms.length, PATIENCE).toBe(1);
    await using b = service(name, { owner: "b", transferable: true });
    await queued(name, 2);
    const { leadership, fail } = a.terms[0]!;

    await leadership.transfer("b");
    fail(errorOf(leadership));

    await expect.poll(() => b.terms.length, PATIENCE).toBe(1);
    await queued(name, 2);
  });

  test("may be awaited by the work itself", async () => {
    const name = "transfer/lead-inside";
    let told: unknown;
    let tell = (): void => {};
    const transferred = new Promise<void>((resolve) => (tell = resolve));
    const stop = new AbortController();
    const work = async (leadership: Leadership) => {
      await queued(name, 2);
      await leadership.transfer("b");
      told = leadership.signal.reason;
      tell();
    };
    const done = lead(two.cluster, name, work, { ttlSeconds: 20, owner: "a", signal: stop.signal });
    await queued(name, 1);
    await using b = service(name, { owner: "b", transferable: true });

    await transferred;
    await expect.poll(() => b.terms.length, PATIENCE).toBe(1);

    expect(told).toMatchObject({ code: "LOCK_RELEASED" });
    stop.abort();
    await done;
  });

  test.each<[string, (leadership: Leadership) => Promise<void>]>([
    ["resign()", (leadership) => leadership.resign()],
    ["release()", (leadership) => leadership.release()],
    ["the end of an await using", (leadership) => leadership[Symbol.asyncDispose]()],
  ])("does not wait for its own work when that awaits %s after it", async (_, leave) => {
    const name = `transfer/lead-and-${_}`;
    const stop = new AbortController();
    const work = async (leadership: Leadership) => {
      await queued(name, 2);
      await leadership.transfer("b");
      await leave(leadership);
    };
    const done = lead(two.cluster, name, work, { ttlSeconds: 20, owner: "a", signal: stop.signal });
    await queued(name, 1);
    await using b = service(name, { owner: "b", transferable: true });

    await expect.poll(() => b.terms.length, PATIENCE).toBe(1);

    stop.abort();
    await done;
  });

  test("leads on with a running work when the candidate is not there", async () => {
    const name = "transfer/lead-refused";
    await using a = service(name, { owner: "a" });
    await expect.poll(() => a.terms.length, PATIENCE).toBe(1);
    const { leadership } = a.terms[0]!;

    expect(await reasonOf(leadership.transfer("b"))).toMatchObject({ reason: "not_found", resigned: false });

    expect([leadership.held, leadership.signal.aborted]).toEqual([true, false]);
  });

  test("resigns for the next one when the candidate leaves while the work ends", async () => {
    const name = "transfer/lead-late";
    await using a = service(name, { owner: "a" });
    await expect.poll(() => a.terms.length, PATIENCE).toBe(1);
    await using b = service(name, { owner: "b", transferable: true });
    await queued(name, 2);
    const c = service(name, { owner: "c", transferable: true });
    await queued(name, 3);

    await a.terms[0]!.leadership.transfer("c");
    await c[Symbol.asyncDispose]();
    await queued(name, 2);
    a.terms[0]!.end();

    await expect.poll(() => b.terms.length, PATIENCE).toBe(1);
  });
});
