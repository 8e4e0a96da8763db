import { LockLostError } from "../../index.js";
import type { EndingJson, LostJson } from "../command-line/json-types.js";
import type { Settled } from "./run-command.js";
import type { Supervised } from "./supervisor.js";

/** Why a command gets SIGTERM from this program. */
export type EndingReason = EndingJson["reason"];

const seconds = (ms: number): string => `${Number((ms / 1000).toFixed(1))} s`;

/** The session's deadline is at 0.9 of the TTL. */
const sinceRenewal = ({ hold, pace }: Supervised): string =>
  seconds(pace.ttlSeconds * 900 - hold.remainingMs());

export const ENDING_TEXTS: Readonly<Record<EndingReason, (it: Supervised) => string>> = {
  unanswered: (it) =>
    `etcd has not renewed the lease for ${sinceRenewal(it)} (TTL ${it.pace.ttlSeconds} s): sent SIGTERM to the command`,
  "max hold": ({ maxHoldMs = 0 }) =>
    `the command has run for ${seconds(maxHoldMs)}, its --max-hold: sent SIGTERM`,
  "left behind": () => "the command has left processes behind in its process group: sent SIGTERM to them",
};

/** A command that this program has ended. */
export type Ended = Settled & { readonly ending: LostJson["reason"] };

/** The last line about a command that this program has ended. */
export function endingText(name: string, outcome: Ended, why: unknown): [string, LostJson] {
  const { ending, ranOnMs, exitCode, byGuardian } = outcome;
  const loss = why instanceof LockLostError ? why.loss : undefined;
  const because = why instanceof Error ? why.message : `the hold of ${name} was at risk`;
  const message =
    ending === "max hold"
      ? `${name} is released: the command was ended at its --max-hold`
      : ending === "unanswered" && loss === undefined
        ? `the command was ended before ${name} could be lost`
        : `the command was ended: ${because}${runText(outcome)}`;
  return [
    message,
    {
      event: "lost",
      name,
      reason: ending,
      ...(loss !== undefined && { loss }),
      message,
      ranOnMs: Math.round(ranOnMs),
      byGuardian,
      commandCode: exitCode,
    },
  ];
}

function runText({ ranOnMs, byGuardian }: Settled): string {
  if (byGuardian && ranOnMs === 0)
    return "; leasehold did not run, and its guardian ended the command at the deadline of the lease";
  if (ranOnMs === 0) return "";
  return `; it may have run for up to ${seconds(ranOnMs)} beside the next holder, because leasehold did not run`;
}
