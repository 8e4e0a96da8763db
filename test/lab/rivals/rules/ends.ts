// I10, I11 and crashes: each hold ends once, through its own holder, and for a reason.
import { closing, NS_PER_MS, running, troubled, type Book, type Hold } from "./book.js";
import { successor } from "./exclusion.js";
import { toMs, type Rule, type Violation } from "./rule.js";

/** I10: a hold ends once, and no client's release ends another's hold. */
export const endsOnce: Rule = (book) => {
  const violations = book.holds.flatMap((hold) => [...endedTwice(hold), ...endedByAnother(book, hold)]);
  return { checks: book.holds.filter(({ release }) => release !== undefined).length, violations };
};

function endedTwice({ p, told, released }: Hold): Violation[] {
  const after = told.filter((t) => released !== undefined && t > released);
  const often = told.length > 1 ? [{ text: `${p} was told ${told.length} times that it lost` }] : [];
  return after.length > 0 ? [...often, { text: `${p} was told of a loss after its release` }] : often;
}

/**
 * Another client was granted while this one claimed to hold, no fault had hit this one, and a third one had just
 * released.
 */
function endedByAnother(book: Book, hold: Hold): Violation[] {
  const next = successor(book, hold);
  if (next === undefined || hold.over < next.granted) return [];
  const between = { from: hold.granted - book.ttl, to: next.granted };
  if (troubled(book, hold.p, between, ["stops", "kills", "hinders", "takes"])) return [];
  const culprit = book.holds.find(
    ({ id, name, release }) =>
      id !== hold.id &&
      id !== next.id &&
      name === hold.name &&
      release !== undefined &&
      release > hold.granted &&
      release < next.granted &&
      next.granted - release < book.ttl / 2n,
  );
  if (culprit === undefined) return [];
  return [{ text: `${culprit.p} released what ${hold.p} held, and ${next.p} was let in` }];
}

/** I11: no loss and no expired time limit is reported without a cause. */
export const noFalseLoss: Rule = (book) => {
  const violations = [
    ...book.holds.flatMap((hold) => falselyLost(book, hold)),
    ...book.waits.flatMap(({ p, t, over, timeoutMs, refused }) => {
      const tooSoon = refused?.timeUp === true && over - t < (BigInt(timeoutMs) * NS_PER_MS) / 2n;
      return tooSoon ? [{ text: `${p}'s ${timeoutMs} ms were said to be up`, ms: toMs(over - t) }] : [];
    }),
  ];
  return { checks: book.holds.length, violations };
};

function falselyLost(book: Book, hold: Hold): Violation[] {
  const denied = hold.claims.find(({ t, held }) => !held && t < (hold.release ?? t + 1n))?.t;
  const at = [denied, hold.told[0]].find((t) => t !== undefined && t < (hold.release ?? t + 1n));
  if (at === undefined || closing(book, hold.p, at)) return [];
  const next = successor(book, hold);
  if (next !== undefined && next.granted <= at) return [];
  const before = { from: at - 2n * book.ttl, to: at };
  if (troubled(book, hold.p, before, ["stops", "kills", "hinders", "takes"])) return [];
  const ms = toMs(running(book, hold.p, { from: hold.granted, to: at }));
  return [{ text: `${hold.p} was told of a loss for no reason`, ms }];
}

/** A process must not end by itself, and `close` must end. */
export const noCrash: Rule = ({ lines }) => {
  const violations = lines.flatMap((line) =>
    line.k === "crash" ? [{ text: `${line.p}: ${line.err}` }] : [],
  );
  return { checks: new Set(lines.map(({ p }) => p)).size - 1, violations };
};
