import type { Clock } from "../../../../src/base/util/clock.js";
import type { Step } from "../../../lab/runner/history.js";
import type { Store } from "../../../../src/testing/memory/store.js";
import type { Build } from "../../run/build.js";
import type { RunObserver } from "../../run/sim-run.js";
import type { TraceEvent } from "../events.js";
import { RecordedMember, type Recording } from "./recorded-member.js";

type TracedEtcd = {
  readonly store: Pick<Store, "onChange">;
  readonly leases: { has(leaseId: bigint): boolean };
};

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

  started({ store, leases }: TracedEtcd): void {
    const leaseOf = new Map<string, bigint>();
    store.onChange((change) => {
      const before = change.names.map((name) => leaseOf.get(name) ?? 0n);
      for (const [i, { kv }] of change.events.entries()) leaseOf.set(change.names[i]!, kv.leaseId);
      // A lease ends after its keys: the next event sees it.
      const ended = (): boolean => before.some((lease) => lease !== 0n && !leases.has(lease));
      this.#add({ is: "change", change, leaseEnded: false });
      this.#ended = ended;
    });
  }

  #ended: (() => boolean) | undefined;

  #add(event: TraceEvent): void {
    const last = this.events.at(-1);
    if (last?.is === "change" && this.#ended?.()) this.events.splice(-1, 1, { ...last, leaseEnded: true });
    this.#ended = undefined;
    this.events.push(event);
  }

  step(step: Step): void {
    this.#add({ is: "step", step });
  }

  #recording(clock: Pick<Clock, "monotonic"> | undefined): Recording {
    const process = this.#processes++;
    const add: Recording["add"] = (event) => this.#add({ ...event, at: clock?.monotonic() ?? 0 });
    return { process, add, nextId: () => ++this.#ids };
  }
}
