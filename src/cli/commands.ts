import type { AnyCommand } from "./command-line/command.js";
import { leader } from "./elections/leader.js";
import { ui } from "./ui/ui.js";

/** In the order of the help. */
export const COMMANDS: readonly AnyCommand[] = [leader, ui];
