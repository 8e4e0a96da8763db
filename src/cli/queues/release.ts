import { forceRelease } from "../../index.js";
import { printable } from "../../printable.js";
import { command } from "../command-line/command.js";
import { CliError, EXIT, usageError } from "../command-line/exit.js";
import { contenderJson } from "../command-line/contender-json.js";
import { type Io, json } from "../command-line/io.js";
import type { ReleaseJson } from "../command-line/json-types.js";
import { write } from "../command-line/output.js";
import { confirm } from "./confirm.js";
import { rowOf, TITLES } from "./contenders.js";
import { findEntry, type Found, type Reading } from "./find-entry.js";
import { GrowingTable } from "./growing-table.js";

export const release = command({
  name: "release",
  args: "NAME|KEY",
  positionals: [1, 1],
  summary: "end a stuck hold, or remove a waiter, by force",
  help: [
    "Removes the holder of a lock, or the entry of one key as leasehold show prints it, after a confirmation. The removal compares\n" +
      "the create revision: it never hits a later holder.",
    "A holder of leasehold is notified that it has lost the lock; until it has stopped, only\n" +
      "its fence protects the next holder. A waiter of leasehold joins the queue again at its end.",
    "Exit code 1: there was no entry to remove, or the answer was no.",
  ],
  flags: {
    yes: { short: "y", text: "do not ask; required without a terminal" },
    as: { value: "name|key", text: "how to read a word that is both" },
  },
  async run({ positionals: [word = ""], flags, io, connect, signal, now, json: wantsJson }) {
    const reading = readingOf(flags.as);
    const asks = mustAsk(flags.yes === true, io);
    const cluster = connect();
    const found = await findEntry(cluster, word, { reading, signal });
    if (!found) return noEntry(io, word, wantsJson);
    if (asks && !(await confirm(io, questionOf(found, now()), signal))) return declined(io, found, wantsJson);
    const released = await forceRelease(cluster, found.entry, { signal });
    if (!released) return noEntry(io, word, wantsJson);
    await write(io, wantsJson ? json(jsonOf(found, true)) : `${doneText(found)}\n`);
    return EXIT.ok;
  },
});

function readingOf(as: string | undefined): Reading {
  if (as === undefined || as === "name" || as === "key") return as;
  throw usageError(`--as must be name or key, got ${JSON.stringify(as)}`, "release");
}

function mustAsk(yes: boolean, { stdin, stderr }: Io): boolean {
  if (yes) return false;
  if (stdin.isTTY && stderr.isTTY) return true;
  throw new CliError(EXIT.usage, "release asks for a confirmation, and there is no terminal", "give --yes");
}

async function noEntry(io: Io, word: string, wantsJson: boolean): Promise<number> {
  if (wantsJson) await write(io, json({ name: word, released: null } satisfies ReleaseJson));
  else io.stderr.write(`leasehold: no entry to release: ${printable(word, Infinity)}\n`);
  return EXIT.nothing;
}

async function declined(io: Io, found: Found, wantsJson: boolean): Promise<number> {
  if (wantsJson) await write(io, json(jsonOf(found, false)));
  else io.stderr.write("leasehold: nothing was released\n");
  return EXIT.nothing;
}

const jsonOf = ({ queue, entry }: Found, done: boolean): ReleaseJson => ({
  name: queue.name,
  released: done ? contenderJson(entry) : null,
});

function questionOf({ queue, entry }: Found, now: number): string {
  const lines = new GrowingTable(TITLES).add([rowOf(entry, now)]);
  return `${printable(queue.name, Infinity)}  ${queue.kind}  ${queue.total.waiters} waiting\n${lines}Remove it?`;
}

const doneText = ({ queue, entry }: Found): string =>
  [
    `released ${printable(queue.name, Infinity)}:`,
    ...[entry.state, printable(entry.owner ?? entry.key, Infinity), `key ${printable(entry.key, Infinity)}`],
    `fence ${entry.revision}`,
  ].join("  ");
