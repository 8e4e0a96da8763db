import { CORRECT, type Behavior } from "../http2/behavior.js";
import type { SimFault } from "./faults.js";

/** Of a run over the client's own transport: what happens to some of the unary calls that etcd has executed. */
const behave = (name: string, change: Partial<Behavior>, more: Partial<SimFault> = {}): SimFault => ({
  // Renewals are answered.
  ...{ name, effect: "hinders", sparesLeases: true, ...more },
  hit({ crew }) {
    if (!crew.overTransport) return undefined;
    const { behavior } = crew;
    Object.assign(behavior, change);
    return {
      target: "members",
      heal() {
        for (const part of Object.keys(change) as (keyof Behavior)[]) behavior[part] = CORRECT[part];
      },
    };
  },
});

/** Named as in the lab, whose proxies do the same. */
export const TRANSPORT_FAULTS: readonly SimFault[] = [
  behave("reorder", { reorderMs: 20 }),
  behave("late-answers", { late: 0.3 }),
  // The connection ends with all of its streams.
  behave("goaway", { goaway: 0.2 }, { endsStreams: true }),
  behave("goaway-releases", { goawayReleases: 0.3 }, { endsStreams: true }),
  behave("calm", { calm: 0.2 }),
];
