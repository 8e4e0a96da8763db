// The time of one hand-over to a contender that is certainly waiting, relative to the time of a deletion's event.
import { latencies } from "../frame/cycles.js";
import type { Field } from "../frame/field.js";
import { open, run } from "../frame/measure.js";
import type { PeerName } from "../peers/peers.js";
import { median, percentile } from "../report/statistics.js";
import { setTimeout as delay } from "node:timers/promises";
import type { Question } from "./question.js";

/** The other contender has its place and its watches long before the release. */
const HOLD_MS = 5;
const TIMES = { warmMs: 500, spanMs: 2000 };
const QUICK_MS = 300;
const BARE: readonly PeerName[] = ["bare-http2", "bare"];

async function betweenTwo(field: Field) {
  if (BARE.includes(field.peer.name)) return deletionToEvent(field);
  const plan = { ...TIMES, contenders: 2, names: "one", holdMs: HOLD_MS, sessions: "each" } as const;
  const { cycles } = await run(field, plan);
  return latencies(cycles);
}

/** From the call of a bare deletion in one process to the event of a bare watch in another. */
async function deletionToEvent(field: Field) {
  const [watching, deleting] = await field.crew.processes(2);
  if (watching === undefined || deleting === undefined) throw new Error("no processes");
  await open(field, [watching, deleting], [1, 1]);
  const { name } = field;
  await watching.start({ kind: "watch", name });
  await deleting.start({ kind: "delete", name, everyMs: HOLD_MS });
  await delay(field.scale.quick ? QUICK_MS : TIMES.warmMs + TIMES.spanMs);
  const deleted = pairsOf(await deleting.stop());
  const heard = new Map(pairsOf(await watching.stop()).map(({ at, revision }) => [revision, at]));
  const all = deleted.map(({ at, revision }) => ((heard.get(revision) ?? NaN) - at) / 1e6);
  const warm = all.slice(Math.floor((all.length * TIMES.warmMs) / (TIMES.warmMs + TIMES.spanMs)));
  return { p50: median(warm), p99: percentile(warm, 99) };
}

function pairsOf(journal: readonly number[]) {
  return Array.from({ length: journal.length / 2 }, (_, n) => ({
    ...{ at: journal[2 * n] ?? NaN, revision: journal[2 * n + 1] ?? NaN },
  }));
}

const CASE = `2 contenders, ${HOLD_MS} ms`;

export const latency: Question = {
  name: "latency",
  title: "Hand-over latency, the next one waiting for sure",
  members: 1,
  columns: [
    { figure: "p50", title: "p50 ms" },
    { figure: "p99", title: "p99 ms" },
  ],
  cases: () => [{ name: CASE, peers: ["leasehold", "bare-http2", "bare", "go"], run: betweenTwo }],
  targets: [
    {
      title: "median hand-over, over a bare deletion's event on the same transport",
      ...{ case: CASE, peer: "leasehold", figure: "p50", over: { peer: "bare-http2" } },
      ...{ bound: { atMost: 1.6 } },
    },
  ],
};
