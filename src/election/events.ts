import { electionChannel } from "../diagnostics/channels.js";
import { withJson } from "../diagnostics/message-json.js";
import type { ElectionMessage } from "../diagnostics/messages.js";
import type { Leadership } from "./leadership.js";

/** What all events of a candidate have in common. */
export type Candidate = Pick<ElectionMessage, "hosts" | "name" | "label" | "owner">;
type Event = Pick<ElectionMessage, "state"> & Partial<ElectionMessage>;

const NOTHING = { fence: undefined, error: undefined, delayMs: undefined };

/** Publishes what happened to a candidate. */
export function publishElection(candidate: Candidate, event: Event): void {
  if (!electionChannel.hasSubscribers) return;
  electionChannel.publish(withJson({ ...NOTHING, ...candidate, ...event }));
}

/** Publishes the beginning of a leadership term, and its end. */
export function publishTerm(candidate: Candidate, { fence, signal }: Leadership): void {
  publishElection(candidate, { state: "elected", fence });
  const ended = (): void => {
    const error = signal.reason as Error & { readonly code: string };
    if (error.code === "LOCK_RELEASED") publishElection(candidate, { state: "resigned", fence });
    else publishElection(candidate, { state: "lost", fence, error });
  };
  if (signal.aborted) ended();
  else signal.addEventListener("abort", ended, { once: true });
}
