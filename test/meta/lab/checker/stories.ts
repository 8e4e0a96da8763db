// Runs of each primitive that break no invariant, for a test to continue or to change.
import { Story } from "../../../lab/checker/story.js";

export const reader = (p: string) => ({ key: `lock/a/read/${p}`, shared: true });
export const writer = (p: string) => ({ key: `lock/a/write/${p}` });

/** Two readers hold together; a writer waits for both, and a third reader for the writer. */
export const readersAndWriter = () =>
  new Story()
    .ask(0, "w1", 1, 10, reader("w1"))
    .grant(1, "w1", 1, 10, reader("w1"))
    .ask(2, "w2", 1, 11, reader("w2"))
    .grant(3, "w2", 1, 11, reader("w2"))
    .ask(4, "w3", 1, 12, writer("w3"))
    .ask(5, "w4", 1, 13, reader("w4"))
    .claim(10, "w1", 1, 10)
    .claim(10, "w2", 1, 11)
    .release(10, "w1", 1, 14, reader("w1"))
    .release(12, "w2", 1, 15, reader("w2"))
    .grant(15, "w3", 1, 12, writer("w3"))
    .claim(20, "w3", 1, 12)
    .release(20, "w3", 1, 16, writer("w3"))
    .grant(22, "w4", 1, 13, reader("w4"))
    .release(30, "w4", 1, 17, reader("w4"));

/** A writer becomes a reader; one reader holds with it, and one waits for the writer between them. */
export const downgraded = (downgradeRev = 14) =>
  new Story()
    .ask(0, "w1", 1, 10, writer("w1"))
    .grant(1, "w1", 1, 10, writer("w1"))
    .ask(2, "w2", 1, 11, reader("w2"))
    .ask(3, "w3", 1, 12, writer("w3"))
    .ask(4, "w4", 1, 13, reader("w4"))
    .downgrade(10, "w1", 1, downgradeRev, writer("w1"))
    .grant(12, "w2", 1, 11, reader("w2"))
    .claim(15, "w1", 1, 10)
    .claim(15, "w2", 1, 11)
    .release(16, "w1", 1, 16, writer("w1"))
    .release(18, "w2", 1, 17, reader("w2"))
    .grant(21, "w3", 1, 12, writer("w3"))
    .release(30, "w3", 1, 18, writer("w3"))
    .grant(33, "w4", 1, 13, reader("w4"))
    .release(40, "w4", 1, 19, reader("w4"));

export const permits = (count: number) => ({ permits: count, shared: true });

/** Two hold; the third waits for one of them. */
export const twoPermits = () =>
  new Story()
    .ask(0, "w1", 1, 10, permits(2))
    .grant(1, "w1", 1, 10, permits(2))
    .ask(2, "w2", 1, 11, permits(2))
    .grant(3, "w2", 1, 11, permits(2))
    .ask(4, "w3", 1, 12, permits(2))
    .claim(10, "w1", 1, 10)
    .claim(30, "w2", 1, 11)
    .release(10, "w1", 1, 13)
    .grant(12, "w3", 1, 12, permits(2))
    .claim(20, "w3", 1, 12)
    .release(30, "w2", 1, 14)
    .release(40, "w3", 1, 15);

export const weighs = (weight: number) => ({ weighted: { permits: 5, weight }, shared: true });

/** A heavy one waits for one of two, and a light one for the heavy one, although there is room for it. */
export const weights = () =>
  new Story()
    .ask(0, "w1", 1, 10, weighs(2))
    .grant(1, "w1", 1, 10, weighs(2))
    .ask(2, "w2", 1, 11, weighs(2))
    .grant(3, "w2", 1, 11, weighs(2))
    .ask(4, "w3", 1, 12, weighs(3))
    .ask(5, "w4", 1, 13, weighs(1))
    .claim(10, "w1", 1, 10)
    .claim(30, "w2", 1, 11)
    .release(10, "w1", 1, 14)
    .grant(12, "w3", 1, 12, weighs(3))
    .claim(20, "w3", 1, 12)
    .release(30, "w2", 1, 15)
    .grant(32, "w4", 1, 13, weighs(1))
    .release(40, "w3", 1, 16)
    .release(41, "w4", 1, 17);

const names = ["lock/a", "lock/b"];
export const a = { lock: "lock/a", names };
export const b = { lock: "lock/b", names };

/** w1 holds b alone; w2 requests a and b, and becomes the head of a at once. */
export const waitingForBoth = () =>
  new Story()
    .ask(0, "w1", 1, 10, { lock: "lock/b" })
    .grant(1, "w1", 1, 10, { lock: "lock/b" })
    .ask(2, "w2", 1, 11, a)
    .ask(2, "w2", 2, 11, b);

const ns = (at: number) => BigInt(at * 1e6);
export const says = { owner: "w1/own", says: "more" };
export const proclaim = (k: "invoke" | "ok", at: number, p: string, value: object) => {
  const of = { f: "proclaim", t: ns(at), p, id: 1, lock: "lock/a", value: JSON.stringify(value) } as const;
  return { k, ...of } as const;
};

interface Told {
  readonly token: number;
  readonly rev: number;
  readonly value: object;
}
/** What an observer is told in the election below. */
export const ALL: readonly (Told | undefined)[] = [
  undefined,
  { token: 10, rev: 10, value: { owner: "w1/own" } },
  { token: 10, rev: 11, value: says },
  { token: 20, rev: 20, value: { owner: "w2/own" } },
  undefined,
];

/** w1 leads and proclaims, w2 leads after it, and then nobody leads; w3 observes. */
export function elections(observed: readonly (Told | undefined)[] = ALL): Story {
  const story = new Story()
    .ask(1, "w1", 1, 10)
    .grant(2, "w1", 1, 10)
    .tell(proclaim("invoke", 5, "w1", says))
    .put(6, 11, "lock/a/w1", says)
    .tell(proclaim("ok", 7, "w1", says))
    .ask(8, "w2", 1, 20)
    .release(10, "w1", 1, 30)
    .grant(12, "w2", 1, 20)
    .release(20, "w2", 1, 40);
  observed.forEach((leader, n) => {
    const { token, rev, value } = leader ?? {};
    const of = { token: BigInt(token ?? 0), rev: BigInt(rev ?? 0), value: JSON.stringify(value) };
    story.tell({ k: "observed", t: ns(n * 5), p: "w3", lock: "lock/a", ...(leader && of) });
  });
  return story.tell({ k: "unobserved", t: ns(6500), p: "w3", lock: "lock/a" });
}
