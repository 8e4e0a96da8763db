import type { AnyCommand } from "./command-line/command.js";
import { completion } from "./completion/completion.js";
import { doctor } from "./doctor/doctor.js";
import { leader } from "./elections/leader.js";
import { observe } from "./elections/observe.js";
import { ls } from "./queues/ls.js";
import { release } from "./queues/release.js";
import { show } from "./queues/show.js";
import { lead } from "./run/lead.js";
import { run } from "./run/run.js";
import { top } from "./top/top.js";
import { ui } from "./ui/ui.js";

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
