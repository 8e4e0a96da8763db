import type { SessionState } from "./lease.js";

export interface SessionStateEvent extends Event {
  readonly type: "statechange";
  readonly state: SessionState;
  readonly previous: SessionState;
}

export type StateListener =
  ((event: SessionStateEvent) => void) | { handleEvent(event: SessionStateEvent): void };

/** What `statechange` dispatches. */
export class StateEvent extends Event implements SessionStateEvent {
  declare readonly type: "statechange";

  constructor(
    readonly state: SessionState,
    readonly previous: SessionState,
  ) {
    super("statechange");
  }
}
