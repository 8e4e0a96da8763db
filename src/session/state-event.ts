import type { RenewalReport } from "../renewal-report.js";
import type { SessionState } from "./lease.js";

/** What `statechange` dispatches, with what the session knew about its renewals at that moment. */
export interface SessionStateEvent extends Event, RenewalReport {
  readonly type: "statechange";
  readonly state: SessionState;
  readonly previous: SessionState;
}

export type StateListener =
  ((event: SessionStateEvent) => void) | { handleEvent(event: SessionStateEvent): void };

export class StateEvent extends Event implements SessionStateEvent {
  declare readonly type: "statechange";
  readonly remainingMs: number;
  readonly sinceLastRenewalMs: number;
  readonly stalledMs: number;
  readonly members: ReadonlyMap<string, Error>;

  constructor(
    readonly state: SessionState,
    readonly previous: SessionState,
    report: RenewalReport,
  ) {
    super("statechange");
    this.remainingMs = report.remainingMs;
    this.sinceLastRenewalMs = report.sinceLastRenewalMs;
    this.stalledMs = report.stalledMs;
    this.members = report.members;
  }
}
