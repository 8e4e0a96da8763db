import { endsOnce, noCrash, noFalseLoss } from "./ends.js";
import { claimsNeverOverlap, lossIsToldInTime } from "./exclusion.js";
import { noLostUpdate, noStaleWrite, tokensRise } from "./resource.js";
import type { Rule } from "./rule.js";
import { nobodyIsLeftWaiting, nothingIsLeft, servedInOrder } from "./waiting.js";

/**
 * Numbered as in the lab's own checker. I2 needs etcd's revisions and I12 needs abort signals, which not every subject
 * has.
 */
export const RULES = {
  ...{ I1: claimsNeverOverlap, I3: tokensRise, I4: noStaleWrite, I5: noLostUpdate, I6: servedInOrder },
  ...{ I7: nobodyIsLeftWaiting, I8: nothingIsLeft, I9: lossIsToldInTime, I10: endsOnce, I11: noFalseLoss },
  crash: noCrash,
} satisfies Record<string, Rule>;

export type Label = keyof typeof RULES;
export const LABELS = Object.keys(RULES) as readonly Label[];
