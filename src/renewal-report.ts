/** What a session knew about the time since the last renewal that etcd accepted. */
export interface RenewalReport {
  /** Milliseconds until the deadline; 0 after it. */
  readonly remainingMs: number;
  /** Milliseconds since the last accepted renewal was sent. */
  readonly sinceLastRenewalMs: number;
  /**
   * Milliseconds of that time, at least, in which this process did not run its timers: suspended, paused, or a blocked
   * event loop. 0 if none of its timers was more than 50 ms late.
   */
  readonly stalledMs: number;
  /** The last failure of each member in that time, by host. */
  readonly members: ReadonlyMap<string, Error>;
}

export const NO_REPORT: RenewalReport = {
  remainingMs: 0,
  sinceLastRenewalMs: 0,
  stalledMs: 0,
  members: new Map<string, Error>(),
};
