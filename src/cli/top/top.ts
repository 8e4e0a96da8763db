import { systemClock } from "../../async/clock.js";
import { command } from "../command-line/command.js";
import { parseDuration } from "../command-line/duration.js";
import { usageError } from "../command-line/exit.js";
import { writeJsonLines } from "./json-lines.js";
import { runLive } from "./live.js";
import { writeSnapshot } from "./snapshot.js";

/** About ten pictures a second are as many as anybody can see. */
const MIN_INTERVAL_MS = 100;
const DEFAULT_INTERVAL = "200ms";

export const top = command({
  name: "top",
  args: "[PREFIX]",
  positionals: [0, 1],
  endsWithOutput: true,
  summary: "watch all locks under a prefix: holders, waiters, hold times, rates",
  help: [
    "A live table of the locks and elections whose names start with PREFIX (default: all), on a terminal of 80 x 24 or more.\nWithout a terminal, or with --once, it prints the present state once.",
    "keys: up/down or k/j, PgUp/PgDn, Home/End select; Enter shows the queue of the selected lock; / filters names,\nEsc removes the filter; w, h and r sort by waiters, hold time and rate of grants; q or Ctrl-C ends.",
    "Hold times with < are upper limits: the lock was granted before this program began. With --json, each line has the locks\nthat changed since the line before, the first line all of them.",
  ],
  flags: {
    once: { text: "print the present state and end, on a terminal too" },
    interval: {
      value: "DURATION",
      text: `shortest time between two pictures, 100ms or more; default ${DEFAULT_INTERVAL}`,
    },
  },
  run: ({ positionals: [prefix = ""], flags, io, json, signal, connect }) => {
    const interval = flags.interval ?? DEFAULT_INTERVAL;
    const intervalMs = parseDuration("interval", interval);
    if (intervalMs < MIN_INTERVAL_MS)
      throw usageError(`--interval must be 100ms or more, got ${JSON.stringify(interval)}`, "top");
    const settings = { cluster: connect(), prefix, clock: systemClock, io, intervalMs, signal };
    if (flags.once) return writeSnapshot(settings, json);
    if (json) return writeJsonLines(settings);
    return io.stdout.isTTY === true ? runLive(settings) : writeSnapshot(settings, false);
  },
});
