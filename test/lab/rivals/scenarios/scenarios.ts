import { answerCut, answerLost } from "./answers.js";
import { clockBack, clockForth, cutOffHolder, killedHolder, pausedHolder } from "./holder.js";
import { crashes, idles, stalls } from "./holds.js";
import { mixed } from "./mixed.js";
import { compacted, placeDeleted, plain, sameProcess } from "./queue.js";
import type { Scenario } from "./scenario.js";
import { failover, memberCut, oneOfThree } from "./servers.js";

export const scenarios = (seed: string): readonly Scenario[] => [
  plain,
  sameProcess,
  pausedHolder,
  killedHolder,
  cutOffHolder,
  clockForth,
  clockBack,
  answerLost,
  answerCut,
  failover,
  memberCut,
  oneOfThree,
  placeDeleted,
  compacted,
  crashes,
  stalls,
  idles,
  mixed(seed),
];
