// I6, I7 and I8: the order, waiters that are never served, and leftovers.
import { closing, NS_PER_MS, troubled, type Book, type Hold } from "./book.js";
import { toMs, type Rule, type Violation } from "./rule.js";

/** Requests less than this apart may be served in any order. */
const AT_ONCE = 100n * NS_PER_MS;

/** I6: the first to request is served first, while nothing is broken. */
export const servedInOrder: Rule = ({ holds, troubles, queues }) => {
  const promise = !queues && { lacks: "no order promised" };
  if (troubles.length > 0) return { checks: 0, violations: [], ...promise };
  const violations = holds.flatMap((later, at) => {
    const passed = holds.slice(0, at).find((earlier) => overtook(earlier, later));
    return passed === undefined
      ? []
      : [{ text: `${passed.p} was served before ${later.p}, who asked first` }];
  });
  return { checks: holds.length, violations, ...promise };
};

/** `first` was granted before `second`, which was in the queue earlier. */
function overtook(first: Hold, second: Hold): boolean {
  if (first.name !== second.name) return false;
  if (first.token !== undefined && second.token !== undefined) return second.token < first.token;
  return second.asked + AT_ONCE < first.asked;
}

/**
 * I7: a free lock finds a new holder within twice the TTL and five seconds, counted while a client that no fault hits
 * requests it. And no acquire ends with an error without a cause.
 */
export const nobodyIsLeftWaiting: Rule = (book) => {
  const limit = 2n * book.ttl + 5000n * NS_PER_MS;
  const names = [...new Set(book.waits.map(({ name }) => name))];
  const free = names.flatMap((name) => freeTimes(book, name));
  const starved = free
    .filter((ns) => ns > limit)
    .map((ns) => ({ text: "nobody got a free lock", ms: toMs(ns) }));
  return {
    checks: book.waits.length,
    violations: [...starved, ...book.waits.flatMap((wait) => gaveUp(book, wait))],
  };
};

/** How long the lock was free each time while a client that could have acquired it was waiting. */
function freeTimes(book: Book, name: string): bigint[] {
  const holds = book.holds.filter((hold) => hold.name === name);
  const waits = book.waits.filter((wait) => wait.name === name);
  const edges = [...holds.flatMap((it) => [it.granted, it.over]), ...waits.flatMap((it) => [it.t, it.over])];
  for (const { from, to } of book.troubles) edges.push(from, to);
  const times = [...new Set(edges)].sort((a, b) => Number(a - b));
  const found: bigint[] = [];
  let free = 0n;
  for (const [at, from] of times.entries()) {
    const to = times[at + 1] ?? from;
    const held = holds.some(({ granted, over }) => granted <= from && over >= to);
    const span = { from: from + 1n, to: to - 1n };
    const asked = waits.some(
      (wait) => wait.t <= from && wait.over >= to && !troubled(book, wait.p, span, ["stops", "hinders"]),
    );
    if (!held && asked) free += to - from;
    else if (held) {
      found.push(free);
      free = 0n;
    }
  }
  return [...found, free];
}

function gaveUp(book: Book, { p, t, over, refused }: Book["waits"][number]): Violation[] {
  if (refused === undefined || refused.timeUp || closing(book, p, over)) return [];
  const before = { from: t - book.ttl, to: over };
  if (troubled(book, p, before, ["stops", "hinders", "kills"])) return [];
  return [{ text: `${p}'s acquire ended with ${refused.err}`, ms: toMs(over - t) }];
}

/** I8: no key is left when no client wants the lock any longer, nor when all have closed. */
export const nothingIsLeft: Rule = ({ lines }) => {
  const looks = lines.filter((line) => line.k === "left");
  const violations = looks.flatMap(({ when, keys }) =>
    keys.map(() => ({
      text: when === "idle" ? "a key was left when nobody wanted it" : "a key was left after close",
    })),
  );
  return { checks: looks.length, violations };
};
