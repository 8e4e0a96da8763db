// I3, I4 and I5: tokens, and the counter that the locks protect.
import type { Access } from "../line.js";
import type { Book, Hold } from "./book.js";
import type { Rule } from "./rule.js";

/** I3: fencing tokens rise with each grant. */
export const tokensRise: Rule = ({ holds }) => {
  const withToken = holds.filter(({ token }) => token !== undefined);
  if (withToken.length === 0) return { checks: 0, violations: [], lacks: "no token" };
  const violations = withToken.flatMap((hold, at) => {
    const before = withToken.slice(0, at).findLast(({ name }) => name === hold.name);
    if (before === undefined || (before.token ?? 0n) < (hold.token ?? 0n)) return [];
    if (unreleased(before, hold)) return [];
    return [{ text: `${hold.p} got token ${hold.token} after ${before.p} got ${before.token}` }];
  });
  return { checks: withToken.length, violations };
};

/** Its release had failed, so that the same client still holds the same place. */
function unreleased(before: Hold, { p, token, granted }: Hold): boolean {
  const failed = before.release !== undefined && before.release < granted && before.released === undefined;
  return failed && before.p === p && before.token === token;
}

/** I4: no write is accepted from a hold once a later hold has used the resource. */
export const noStaleWrite: Rule = (book) => {
  const accesses = accepted(book);
  const granted = new Map(book.holds.map(({ id, granted: at }) => [id, at]));
  const since = ({ id }: Access) => granted.get(id) ?? 0n;
  const violations = writes(accesses).flatMap((write) => {
    const newer = accesses.find((it) => it.name === write.name && it.t < write.t && since(it) > since(write));
    return newer === undefined ? [] : [{ text: `${write.p} wrote after ${newer.p}, who held later` }];
  });
  return { checks: writes(accesses).length, violations };
};

/** I5: no accepted write covers one that its writer has not read. */
export const noLostUpdate: Rule = (book) => {
  const all = writes(accepted(book));
  const violations = all.flatMap(({ p, seq, before }) =>
    seq === before + 1 ? [] : [{ text: `${p} wrote ${seq} over ${before}` }],
  );
  return { checks: all.length, violations };
};

const accepted = ({ lines }: Book) =>
  lines.filter((line): line is Access => (line.k === "read" || line.k === "write") && line.accepted);
const writes = (accesses: readonly Access[]) => accesses.filter(({ k }) => k === "write");
