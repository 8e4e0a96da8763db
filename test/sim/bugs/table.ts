import type { Bug } from "./bug.js";
import { HOLDS } from "./holds.js";
import { QUEUES } from "./queues.js";
import { SESSIONS } from "./sessions.js";

/** Bugs of this repository's history whose cause is in the protocol or its timing. */
export const BUGS: readonly Bug[] = [...QUEUES, ...HOLDS, ...SESSIONS];
