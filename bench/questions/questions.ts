import { alone } from "./alone.js";
import { busyEtcd } from "./busy-etcd.js";
import { crowd } from "./crowd.js";
import { distinct } from "./distinct.js";
import { fairness } from "./fairness.js";
import { footprint } from "./footprint.js";
import { follower } from "./follower.js";
import { handOvers } from "./hand-over.js";
import { idleness } from "./idle.js";
import { latency } from "./latency.js";
import type { Question } from "./question.js";
import { roundTrips } from "./round-trips.js";
import { again, stickyCrowd, strangers } from "./sticky.js";
import { takeOver } from "./take-over.js";
import { transport } from "./transport.js";
import { tryLock } from "./try-lock.js";

export const QUESTIONS: readonly Question[] = [
  ...[transport, alone, handOvers, follower, busyEtcd, latency, distinct, tryLock],
  ...[idleness, crowd, takeOver, fairness, footprint, roundTrips, again, strangers, stickyCrowd],
];
