// The commands that look at elections. They read only: they need no session, and no right but to read the keys under the
// name, and for `candidates` what these say of themselves. A missing leader is exit code 1, never an empty line with code 0. `observe` prints each change that
// `Election.observe` yields, a vacancy too, and ends only on a signal, an error, or when the reader of its output has gone.
// On a terminal, values are escaped; with `--json` they are what the candidate has put.
import { Election, type ElectionCandidate, type Leader } from "../../index.js";
import { printable } from "../../base/util/printable.js";
import { command } from "./command.js";
import { EXIT, json, write, leaseJson, tableFor } from "./io.js";
import type { CandidateJson, CandidatesJson, LeaderJson } from "./json-types.js";

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
    if (wantsJson) await write(io, json(leaderJson(name, found)));
    else if (found) await write(io, `${printable(found.value, Infinity)}\n`);
    else io.stderr.write(`leasehold: ${JSON.stringify(name)} has no leader\n`);
    return found ? EXIT.ok : EXIT.nothing;
  },
});

const candidateJson = (candidate: ElectionCandidate): CandidateJson => {
  const { key, value, revision, leaseId, leads, transferable, owner, priority, labels } = candidate;
  return {
    key,
    value,
    revision: revision.toString(),
    ...leaseJson(leaseId),
    leads,
    transferable,
    ...(transferable && { owner: owner ?? "", priority, labels }),
  };
};

/** What a table shows for what a candidate has not said of itself. */
const NONE = "-";
/** A value may have 64 KiB, which would be the width of its column. */
const MAX_CELL = 200;

function cellsOf({ leads, value, owner, priority, labels, transferable, revision, key }: ElectionCandidate) {
  const said = Object.entries(labels).map(([name, text]) => `${name}=${text}`);
  return [
    leads ? "leads" : "waits",
    printable(value, MAX_CELL),
    ...(transferable
      ? [owner ?? NONE, `${priority}`, printable(said.join(","), MAX_CELL) || NONE]
      : [NONE, NONE, NONE]),
    revision.toString(),
    key,
  ];
}

export const candidates = command({
  name: "candidates",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "list the leader and those that wait to lead, with priorities and labels",
  help: [
    "Lists the candidates of this election, the leader first, in the order of the queue, at most the 1000 oldest.",
    "PRIORITY: - for a candidate of another client, or without a priority, labels or the option transferable: it keeps its place, and a " +
      "leader cannot hand over to it, nor past it; --priority 0 is enough. FENCE: the create revision of the key, and the fence once it leads. OWNER: what " +
      "leadership.transfer takes.",
    "A leader that has died leads in this list until its lease and its release delay have ended. The list cannot show whom a rule eligible " +
      "of the library admits.",
    "Exit code 1: there are no candidates.",
  ],
  flags: {},
  async run({ positionals: [name = ""], io, connect, signal, json: wantsJson }) {
    const found = await new Election(connect(), name).candidates({ signal });
    if (wantsJson)
      await write(io, json({ name, candidates: found.map(candidateJson) } satisfies CandidatesJson));
    else if (found.length > 0) await write(io, tableFor(TITLES, io.stdout).add(found.map(cellsOf)));
    else io.stderr.write(`leasehold: ${JSON.stringify(name)} has no candidates\n`);
    return found.length > 0 ? EXIT.ok : EXIT.nothing;
  },
});

const TITLES = ["STATE", "VALUE", "OWNER", "PRIORITY", "LABELS", "FENCE", "KEY"];

export const observe = command({
  name: "observe",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "print every change of leader or value",
  help: [
    'Prints the current leader of this election, then a line for every change: "leader", its fence and its value, or "no leader". It ' +
      "continues through outages of etcd, and ends on a signal with 128 plus its number, 130 for Ctrl-C. On a terminal, it cuts values at " +
      "200 characters. No value can pass for a vacancy, as the first word comes from leasehold.",
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
