import type { LabOptions } from "../runner/lab.js";
import type { TierName } from "../tiers/index.js";

/** In a file of the build, exactly once: `from` becomes `to`. */
export interface Patch {
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

/** Where the lab looks for it. */
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
  | "gapMs"
  | "lastsMs"
  | "oneAddress"
  | "tls"
  | "auth"
> {
  readonly tier: TierName;
  readonly seconds: number;
  /** With so many seeds at most. */
  readonly runs: number;
}

export interface Mutant {
  readonly name: string;
  /** What it does wrong. */
  readonly wrong: string;
  readonly patches: readonly Patch[];
  readonly hunt: Hunt;
}

export const t1 = (faults: readonly string[], more: Partial<Hunt> = {}): Hunt => ({
  ...{ tier: "t1", faults, seconds: 20, runs: 3, gapMs: [100, 600], ...more },
});
export const t2 = (faults: readonly string[], more: Partial<Hunt> = {}): Hunt => ({
  ...t1(faults, { seconds: 30, ...more }),
  tier: "t2",
});
