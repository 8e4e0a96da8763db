import { inspect, type QueueState } from "../../index.js";
import { printable } from "../../printable.js";
import { command } from "../command-line/command.js";
import { EXIT } from "../command-line/exit.js";
import { contenderJson } from "../command-line/contender-json.js";
import { json } from "../command-line/io.js";
import type { QueueJson } from "../command-line/json-types.js";
import { write } from "../command-line/output.js";
import { rowOf, TITLES } from "./contenders.js";
import { GrowingTable } from "./growing-table.js";
import { parseLimit } from "./limit.js";

/** As the library has it. */
const LIMITS = { command: "show", fallback: 100, max: 1000 };

export const show = command({
  name: "show",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "show who holds a lock, or leads, and who waits",
  help: [
    "Shows the holders and the waiters of a lock or an election in the order of the queue, of all clients: leasehold, Go, etcdctl,\n" +
      "jetcd.",
    "AGE is how long ago an entry joined the queue, by its own clock; FENCE is the create revision of its key, which is the\n" +
      "fence of an exclusive holder; LEASE is the ID that etcdctl lease takes.",
    "Exit code 1: nobody holds or waits.",
  ],
  flags: {
    limit: { value: "N", text: "at most so many holders and so many waiters, up to 1000; default 100" },
  },
  async run({ positionals: [name = ""], flags, io, connect, signal, now, json: wantsJson }) {
    const limit = parseLimit(flags.limit, LIMITS);
    const queue = await inspect(connect(), name, { limit, signal });
    await write(io, wantsJson ? json(queueJson(queue)) : textOf(queue, now()));
    return queue.total.holders + queue.total.waiters > 0 ? EXIT.ok : EXIT.nothing;
  },
});

const queueJson = ({ name, kind, holders, waiters, total, revision }: QueueState): QueueJson => ({
  ...{ name, kind, total, revision: revision.toString() },
  holders: holders.map(contenderJson),
  waiters: waiters.map(contenderJson),
});

function textOf({ name, kind, holders, waiters, total }: QueueState, now: number): string {
  if (total.holders + total.waiters === 0) return "";
  const rows = (contenders: QueueState["holders"]): string[][] =>
    contenders.map((contender) => rowOf(contender, now));
  const table = new GrowingTable(TITLES);
  return [
    `${printable(name, Infinity)}  ${kind}  ${total.holders} holding, ${total.waiters} waiting\n`,
    table.add(rows(holders)),
    more(total.holders - holders.length, "holding"),
    table.add(rows(waiters)),
    more(total.waiters - waiters.length, "waiting"),
  ].join("");
}

const more = (count: number, state: string): string => (count > 0 ? `and ${count} more ${state}\n` : "");
