import type { Clock } from "../../../../src/base/util/clock.js";
import type { Step } from "../../../lab/runner/history.js";
import type { Store } from "../../../../src/testing/memory/store.js";
import type { Build } from "../../run/build.js";
import type { RunObserver } from "../../run/sim-run.js";
import type { TraceEvent } from "../events.js";
import { RecordedMember, type Recording } from "./recorded-member.js";

/** Records the trace of one run. It changes nothing in the run: the hash of its log is the same. */
export class TraceRecorder implements RunObserver {
  readonly events: TraceEvent[] = [];
  #processes = 0;
  #ids = 0;

  /** A build whose clients are recorded. */
  recorded(build: Build): Build {
    return {
      ...build,
      createCluster: (options, surroundings = {}) => {
        const { newMember, clock } = surroundings;
        if (newMember === undefined) return build.createCluster(options, surroundings);
        const recording = this.#recording(clock);
        return build.createCluster(options, {
          ...surroundings,
          newMember: (...args) => new RecordedMember(newMember(...args), recording),
        });
      },
    };
  }

  started({ store }: { readonly store: Pick<Store, "onChange"> }): void {
    store.onChange((change) => this.events.push({ is: "change", change }));
  }

  step(step: Step): void {
    this.events.push({ is: "step", step });
  }

  #recording(clock: Pick<Clock, "monotonic"> | undefined): Recording {
    const process = this.#processes++;
    const add: Recording["add"] = (event) => this.events.push({ ...event, at: clock?.monotonic() ?? 0 });
    return { process, add, nextId: () => ++this.#ids };
  }
}
