import type { AnyCommand } from "./command.js";
import { completion } from "./completion.js";
import { doctor } from "./doctor/doctor.js";
import { leader, observe } from "./leader.js";
import { ls, release, show } from "./queues.js";
import { lead } from "./run/lead.js";
import { run } from "./run/run.js";
import { top } from "./top/top.js";
import { ui } from "./ui.js";

/** In the order of the help. */
export const COMMANDS: readonly AnyCommand[] = [
  run,
  lead,
  ls,
  show,
  release,
  leader,
  observe,
  top,
  doctor,
  ui,
  completion(() => COMMANDS),
];
