import { Election } from "../../index.js";
import { command } from "../command-line/command.js";
import { EXIT } from "../command-line/exit.js";
import { json } from "../command-line/io.js";
import { printable } from "../../printable.js";
import { leaderJson } from "./leader-json.js";

export const leader = command({
  name: "leader",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "print the leader's value",
  help: [
    "Prints what the leader of this election campaigned with or last proclaimed. Exit code 1: there is no leader.",
  ],
  flags: {},
  async run({ positionals: [name = ""], io, connect, json: wantsJson }) {
    const found = await new Election(connect(), name).leader();
    if (wantsJson) io.stdout.write(json(leaderJson(name, found)));
    else if (found) io.stdout.write(`${printable(found.value, Infinity)}\n`);
    return found ? EXIT.ok : EXIT.nothing;
  },
});
