// I1 and I9: simultaneous claims, and notification of the loss.
import { lengthOf, running, type Book, type Hold, type Span } from "./book.js";
import { toMs, type Rule, type Violation } from "./rule.js";

/** I1: no two clients claim one lock at the same time. */
export const claimsNeverOverlap: Rule = ({ holds }) => {
  const violations = holds.flatMap((first, at) =>
    holds.slice(at + 1).flatMap((second) => {
      const ns = second.name === first.name ? lengthOf(common(first.spans, second.spans)) : 0n;
      if (ns === 0n) return [];
      return [{ text: `${first.p} and ${second.p} both claimed`, ms: toMs(ns) }];
    }),
  );
  return { checks: holds.length, violations };
};

function common(some: readonly Span[], others: readonly Span[]): Span[] {
  return some.flatMap((a) =>
    others.flatMap((b) => {
      const from = a.from > b.from ? a.from : b.from;
      const to = a.to < b.to ? a.to : b.to;
      return from < to ? [{ from, to }] : [];
    }),
  );
}

/** The first other hold that was granted while this one was not yet over. */
export function successor({ holds }: Book, hold: Hold): Hold | undefined {
  return holds.find(
    (other) =>
      other !== hold &&
      other.name === hold.name &&
      other.granted > hold.granted &&
      other.granted < (hold.release ?? hold.over),
  );
}

/**
 * I9: a client that has lost the lock does not claim it after another one was granted. The time counts until the client
 * reports the loss; time in which it was stopped does not count.
 */
export const lossIsToldInTime: Rule = (book) => {
  const overtaken = book.holds.flatMap((hold) => {
    const next = successor(book, hold);
    return next === undefined ? [] : [{ hold, next }];
  });
  const violations = overtaken.flatMap(({ hold, next }) => lateness(book, hold, next));
  return { checks: overtaken.length, violations };
};

function lateness(book: Book, hold: Hold, next: Hold): Violation[] {
  const claimedStill = hold.spans.some(({ to }) => to > next.granted);
  if (!claimedStill) return [];
  const told = hold.claims.find(({ t, held }) => t > next.granted && !held)?.t ?? hold.told[0];
  const toldAtAll = told !== undefined && told < (hold.release ?? told + 1n);
  const ms = toMs(running(book, hold.p, { from: next.granted, to: toldAtAll ? told : hold.over }));
  const text = `${hold.p} was ${toldAtAll ? "told late" : "never told"} that ${next.p} holds`;
  return [{ text, ms }];
}
