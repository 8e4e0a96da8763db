import type { AnyCommand } from "./command-line/command.js";
import { doctor } from "./doctor/doctor.js";
import { leader } from "./elections/leader.js";

/** In the order of the help. */
export const COMMANDS: readonly AnyCommand[] = [leader, doctor];
