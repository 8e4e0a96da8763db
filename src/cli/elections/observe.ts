import { Election, type Leader } from "../../index.js";
import { printable } from "../../printable.js";
import { command } from "../command-line/command.js";
import { EXIT } from "../command-line/exit.js";
import { json } from "../command-line/io.js";
import { write } from "../command-line/output.js";
import { leaderJson } from "./leader-json.js";

export const observe = command({
  name: "observe",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "print every change of leader or value",
  help: [
    'Prints the present leader of this election, then a line for every change: "leader", its fence and its value, or "no leader". It\n' +
      "continues through outages of etcd, and ends on a signal with 128 plus its number, 130 for Ctrl-C. On a terminal, it cuts long\n" +
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
