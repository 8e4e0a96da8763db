import { mayHaveNone } from "../../lab/checker/latch-rules.js";
import { isReleased } from "../../lab/checker/barrier-rules.js";
import { meetingsOf, momentsOf, type Meeting } from "../../lab/checker/meetings.js";
import type { Called } from "../../lab/runner/history.js";
import type { Source } from "./export.js";
import type { Operation } from "./operation.js";

type Part = Pick<Operation, "op"> & Partial<Operation>;

/** Latches, and barriers that one process closes: what their callers were told, and what etcd has done to them. */
export function meetingOperations(source: Source): Operation[] {
  const calls = meetingsOf(source.facts, "countDown", "counter", "enlist", "wait", "count", "reset");
  const latches = calls.filter((call) => call.called.f !== "counter" || isFirst(calls, call));
  const barriers = meetingsOf(source.facts, "hold", "release", "pass");
  return [
    ...latches.flatMap((call) => operationOf(source, call, { object: "latch", part: latchPart(call) })),
    ...locksOf(latches).flatMap((lock) => ends(source, lock)),
    ...barriers.flatMap((call) => operationOf(source, call, { object: "barrier", part: barrierPart(call) })),
    ...locksOf(barriers).flatMap((lock) => deaths(source, lock)),
  ];
}

const counterOf = ({ p, of }: Called): string => `${p}#${of}`;

/** Once a counter was told that it has counted, its further calls do nothing. */
const isFirst = (calls: readonly Meeting[], { called, from }: Meeting): boolean =>
  !calls.some(
    (other) =>
      other.called.f === "counter" &&
      counterOf(other.called) === counterOf(called) &&
      other.from < from &&
      other.status === "ok",
  );

const locksOf = (calls: readonly Meeting[]): readonly string[] => [
  ...new Set(calls.map(({ called }) => called.lock)),
];

function operationOf(
  { facts, times: { at } }: Source,
  call: Meeting,
  { object, part }: { readonly object: Operation["object"]; readonly part: Part | undefined },
): Operation[] {
  if (part === undefined) return [];
  const { called, from, to, status } = call;
  const { p: client, lock: name } = called;
  // A counter that was enlisted while the latch was open counts nothing, also when that has been reset since.
  const mayDoNothing = called.f === "counter" && mayHaveNone(facts, call);
  const isKnown = (status === "ok" && !mayDoNothing) || part.op === "refused";
  return [{ object, name, client, ...part, from: at(from), ...(isKnown && { to: at(to) }) }];
}

/** What it does, or undefined if no order depends on it. */
function latchPart({ called, returned, status }: Meeting): Part | undefined {
  const { f, number = 0, item } = called;
  if (status === "COUNT_MISMATCH") return { op: "refused", number };
  const of = { number, ...(item !== undefined && { item }) };
  if (f === "countDown" || f === "enlist" || f === "reset") return { op: f, ...of };
  if (f === "counter")
    return status === "LATCH_BROKEN" ? undefined : { op: "countDown", number, item: counterOf(called) };
  if (status !== "ok") return undefined;
  return f === "wait" ? { op: f, ...of } : { op: "count", ...of, value: returned?.n ?? 0 };
}

function barrierPart({ called: { f }, returned, status }: Meeting): Part | undefined {
  if (status === "BARRIER_BROKEN") return { op: "refused" };
  if (f === "hold") return { op: "hold", value: returned?.n ?? 1 };
  return f === "release" || status === "ok" ? { op: f === "release" ? "release" : "pass" } : undefined;
}

/** The time of the latch is over. */
const ends = ({ facts, times }: Source, lock: string): Operation[] =>
  momentsOf(facts, "latch", lock).flatMap(({ rev, from, events }) =>
    events.some(({ type, key }) => type === "DELETE" && key.endsWith("//latch"))
      ? [{ object: "latch", name: lock, op: "expire", client: "etcd", ...times.revision(rev, from) }]
      : [],
  );

/** The session of a holder has ended. */
const deaths = ({ facts, times }: Source, lock: string): Operation[] =>
  momentsOf(facts, "gate", lock).flatMap((moment) =>
    moment.events.some(({ type, key }) => type === "DELETE" && key.endsWith("/gate")) &&
    !isReleased(lock, moment)
      ? [
          {
            object: "barrier",
            name: lock,
            op: "die",
            client: "etcd",
            ...times.revision(moment.rev, moment.from),
          },
        ]
      : [],
  );
