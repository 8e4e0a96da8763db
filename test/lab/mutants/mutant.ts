import type { LabOptions } from "../runner/lab.js";
import type { TierName } from "../tiers/index.js";

/** In a file of the build, `from` becomes `to`; `from` must occur exactly once. */
export interface Patch {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** The setting in which the lab looks for it. */
export interface Hunt extends Pick<
  LabOptions,
  | "faults"
  | "of"
  | "ttlSeconds"
  | "workers"
  | "lanes"
  | "names"
  | "nested"
  | "camp"
  | "wanted"
  | "sticky"
  | "valueBytes"
  | "gapMs"
  | "lastsMs"
  | "oneAddress"
  | "tls"
  | "auth"
  | "guardian"
  | "maxStallMs"
  | "releaseDelayMs"
> {
  readonly tier: TierName;
  readonly seconds: number;
  /** The maximum number of seeds. */
  readonly runs: number;
}

export interface Mutant {
  readonly name: string;
  /** What it does wrong. */
  readonly wrong: string;
  readonly patches: readonly Patch[];
  /** undefined: the lab cannot show it; the simulation does. */
  readonly hunt?: Hunt;
}

export const t1 = (faults: readonly string[], more: Partial<Hunt> = {}): Hunt => ({
  ...{ tier: "t1", faults, seconds: 20, runs: 3, gapMs: [100, 600], ...more },
});
export const t2 = (faults: readonly string[], more: Partial<Hunt> = {}): Hunt => ({
  ...t1(faults, { seconds: 30, ...more }),
  tier: "t2",
});
