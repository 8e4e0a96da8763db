import { diag } from "@opentelemetry/api";
import type { ChannelListener } from "node:diagnostics_channel";
import { printable } from "../printable.js";

/** Both kinds of channels: those with a type of message, and those that Node.js makes for a tracing channel. */
interface Subscribable<M> {
  publish(message: M): void;
  subscribe(listener: ChannelListener): void;
  unsubscribe(listener: ChannelListener): void;
}

/** The subscriptions of one call of `instrument`. */
export class Subscriptions {
  readonly #cancel: (() => void)[] = [];

  on<M>(channel: Subscribable<M>, handle: (message: M) => void): void {
    const listener: ChannelListener = (message) => guard(() => handle(message as M));
    channel.subscribe(listener);
    this.#cancel.push(() => channel.unsubscribe(listener));
  }

  cancel(): void {
    for (const cancel of this.#cancel.splice(0)) cancel();
  }
}

/**
 * An error that a subscriber throws becomes an uncaught exception of the process, by `node:diagnostics_channel`. A sampler, a
 * span processor or a metric reader may throw any, so they go to the diagnostic logger of OpenTelemetry.
 */
export function guard(run: () => void): void {
  try {
    run();
  } catch (error) {
    report(error);
  }
}

function report(error: unknown): void {
  try {
    diag.error(`leasehold/otel: ${printable(String(error))}`);
  } catch {
    // The logger, or a conversion to a string, is code of others, too; nothing is left to report to.
  }
}
