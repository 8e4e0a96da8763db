import { endsOnce, noCrash, noFalseLoss } from "./ends.js";
import { claimsNeverOverlap, lossIsToldInTime } from "./exclusion.js";
import { noLostUpdate, noStaleWrite, tokensRise } from "./resource.js";
import type { Rule } from "./rule.js";
import { nobodyIsLeftWaiting, nothingIsLeft, servedInOrder } from "./waiting.js";

/** By the numbers that the lab's own checker has. I2 looks at revisions of etcd, I12 at signals: not for everybody. */
export const RULES = {
  ...{ I1: claimsNeverOverlap, I3: tokensRise, I4: noStaleWrite, I5: noLostUpdate, I6: servedInOrder },
  ...{ I7: nobodyIsLeftWaiting, I8: nothingIsLeft, I9: lossIsToldInTime, I10: endsOnce, I11: noFalseLoss },
  crash: noCrash,
} satisfies Record<string, Rule>;

export type Label = keyof typeof RULES;
export const LABELS = Object.keys(RULES) as readonly Label[];
