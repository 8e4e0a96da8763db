import type { Clock } from "../../async/clock.js";
import { tellOutside } from "../../async/own-context.js";
import { memberChannel } from "../../diagnostics/channels.js";
import { withJson } from "../../diagnostics/message-json.js";
import type { MemberMessage } from "../../diagnostics/messages.js";
import { EtcdRefusedError } from "../../errors.js";
import { MemberRefusedError, UnansweredError } from "../port-errors.js";

interface Failure {
  readonly error: Error;
  /** On the monotonic clock. */
  readonly at: number;
}

/** What is known of each host: whether it answers, and why it failed last. Publishes each change of that once. */
export class MemberStates {
  readonly #states = new Map<string, MemberMessage["state"]>();
  readonly #failures = new Map<string, Failure>();
  /** Of hosts that have not answered since. */
  readonly #unanswered = new Map<string, Failure>();

  constructor(
    private readonly hosts: readonly string[],
    private readonly clock: Clock,
  ) {}

  /** A connection to the host has its first answer. */
  answered(host: string): void {
    this.#become(host, "up");
  }

  /** A call to the host, or a stream, has failed. */
  failed(host: string, error: Error = new UnansweredError("no answer in time")): void {
    this.#failures.set(host, { error, at: this.clock.monotonic() });
  }

  /** The last contact with the host has failed. */
  contactFailed(host: string, error: Error): void {
    this.#unanswered.set(host, { error, at: this.clock.monotonic() });
  }

  /** The host has answered a call, or on a stream. */
  contacted(host: string): void {
    if (this.#unanswered.size > 0) this.#unanswered.delete(host);
  }

  /** The last failure of each host that has not answered since, and how long ago it was. */
  unanswered(): ReadonlyMap<string, { readonly error: Error; readonly ms: number }> {
    const now = this.clock.monotonic();
    return new Map([...this.#unanswered].map(([host, { error, at }]) => [host, { error, ms: now - at }]));
  }

  /** The host is no longer in use, because of its last failure. */
  left(host: string): void {
    const error = this.#failures.get(host)?.error;
    const refused = error instanceof MemberRefusedError || error instanceof EtcdRefusedError;
    const state = this.#states.get(host);
    // An attempt to use it again that fails in another way belongs to the same episode.
    if (state === "refused" || (state === "down" && !refused)) return;
    this.#become(host, refused ? "refused" : "down", error);
  }

  /** The last failure of each host since `at`, on the monotonic clock. */
  failuresSince(at: number): ReadonlyMap<string, Error> {
    const recent = [...this.#failures].filter(([, failure]) => failure.at >= at);
    return new Map(recent.map(([host, { error }]) => [host, error]));
  }

  #become(host: string, state: MemberMessage["state"], error?: Error): void {
    if (this.#states.get(host) === state) return;
    this.#states.set(host, state);
    if (!memberChannel.hasSubscribers) return;
    tellOutside(() => memberChannel.publish(withJson({ hosts: this.hosts, host, state, error })));
  }
}
