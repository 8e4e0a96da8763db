import type { Tier } from "../runner/ground.js";
import { t1 } from "./t1.js";
import { t2 } from "./t2.js";
import { t3 } from "./t3.js";
import { t4 } from "./t4.js";

export const TIERS = { t1, t2, t3, t4 } as const;
export type TierName = keyof typeof TIERS;

/** A tier whose faults fit its own ground; callers need not know which tier it is. */
export const tierOf = (name: TierName): Tier => TIERS[name];
