import { list, type LockSummary } from "../../index.js";
import { command } from "../command-line/command.js";
import { EXIT } from "../command-line/exit.js";
import { contenderJson } from "../command-line/contender-json.js";
import { json } from "../command-line/io.js";
import type { LockJson } from "../command-line/json-types.js";
import { write } from "../command-line/output.js";
import { ageText, NONE } from "./contenders.js";
import { GrowingTable } from "./growing-table.js";
import { parseLimit } from "./limit.js";

/** Of one request to the library: enough for few requests, and few enough for the first lines to come at once. */
const PAGE = 200;

export const ls = command({
  name: "ls",
  args: "[PREFIX]",
  positionals: [0, 1],
  endsWithOutput: true,
  summary: "list locks and elections",
  help: [
    "Lists the locks and elections whose names start with PREFIX, or all of them: kind, owner of the holder, how long ago the\n" +
      "holder joined the queue, number of waiters. It writes them page by page.",
    "Exit code 0 also if there are none.",
  ],
  flags: { limit: { value: "N", text: "at most so many locks; default all" } },
  async run({ positionals: [prefix = ""], flags, io, connect, signal, now, json: wantsJson }) {
    let left = parseLimit(flags.limit, { command: "ls", fallback: Infinity, max: Infinity });
    const cluster = connect();
    const table = new GrowingTable(["NAME", "KIND", "HOLDER", "AGE", "WAITERS"]);
    let cursor: string | undefined;
    do {
      const page = await list(cluster, prefix, { limit: Math.min(left, PAGE), cursor, signal });
      const lines = wantsJson
        ? page.locks.map((lock) => json(lockJson(lock))).join("")
        : table.add(page.locks.map((lock) => cells(lock, now())));
      await write(io, lines);
      left -= page.locks.length;
      cursor = page.cursor;
      signal.throwIfAborted();
    } while (cursor !== undefined && left > 0);
    return EXIT.ok;
  },
});

const cells = ({ name, kind, holder, waiters }: LockSummary, now: number): string[] => [
  name,
  kind,
  holder?.owner ?? NONE,
  holder === undefined ? NONE : ageText(holder, now),
  waiters.toString(),
];

const lockJson = ({ name, kind, holder, waiters }: LockSummary): LockJson => ({
  ...{ name, kind, total: { waiters } },
  holder: holder === undefined ? null : contenderJson(holder),
});
