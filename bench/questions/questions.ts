import { alone } from "./alone.js";
import { distinct } from "./distinct.js";
import { handOvers } from "./hand-over.js";
import { latency } from "./latency.js";
import type { Question } from "./question.js";

export const QUESTIONS: readonly Question[] = [alone, handOvers, latency, distinct];
