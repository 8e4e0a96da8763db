import type { AnyCommand } from "./command-line/command.js";
import { leader } from "./elections/leader.js";
import { lead } from "./run/lead.js";
import { run } from "./run/run.js";

/** In the order of the help. */
export const COMMANDS: readonly AnyCommand[] = [run, lead, leader];
