// The commands that look at elections. They read only: they need no session, and no right but to read the keys under the
// name. A missing leader is exit code 1, never an empty line with code 0. `observe` prints each change that
// `Election.observe` yields, a vacancy too, and ends only on a signal, an error, or when the reader of its output has gone.
// On a terminal, values are escaped; with `--json` they are what the candidate has put.
import { Election, type Leader } from "../../index.js";
import { printable } from "../../base/util/printable.js";
import { command } from "./command.js";
import { EXIT, json, write, leaseJson } from "./io.js";
import type { LeaderJson } from "./json-types.js";

const leaderJson = (name: string, leader: Leader | undefined): LeaderJson => {
  if (!leader) return { name, leader: null };
  const { key, value, fence, modRevision, leaseId } = leader;
  const revisions = { fence: fence.toString(), modRevision: modRevision.toString() };
  return { name, leader: { key, value, ...revisions, ...leaseJson(leaseId) } };
};

export const leader = command({
  name: "leader",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "print the leader's value",
  help: [
    "Prints the value that the leader of this election campaigned with or last proclaimed. Exit code 1: there is no leader.",
  ],
  flags: {},
  async run({ positionals: [name = ""], io, connect, json: wantsJson }) {
    const found = await new Election(connect(), name).leader();
    if (wantsJson) io.stdout.write(json(leaderJson(name, found)));
    else if (found) io.stdout.write(`${printable(found.value, Infinity)}\n`);
    else io.stderr.write(`leasehold: ${JSON.stringify(name)} has no leader\n`);
    return found ? EXIT.ok : EXIT.nothing;
  },
});

export const observe = command({
  name: "observe",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "print every change of leader or value",
  help: [
    'Prints the current leader of this election, then a line for every change: "leader", its fence and its value, or "no leader". It ' +
      "continues through outages of etcd, and ends on a signal with 128 plus its number, 130 for Ctrl-C. On a terminal, it cuts long " +
      "values.",
  ],
  flags: {},
  async run({ positionals: [name = ""], io, connect, signal, json: wantsJson }) {
    const maxLength = io.stdout.isTTY ? undefined : Infinity;
    for await (const leader of new Election(connect(), name).observe({ signal }))
      await write(io, wantsJson ? json(leaderJson(name, leader)) : `${textOf(leader, maxLength)}\n`);
    return EXIT.ok;
  },
});

/** The first word is ours, so that no value can pass for a vacancy. */
const textOf = (leader: Leader | undefined, maxLength: number | undefined): string =>
  leader ? `leader  ${leader.fence}  ${printable(leader.value, maxLength)}` : "no leader";
