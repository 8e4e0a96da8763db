import type { Attributes, Exception } from "@opentelemetry/api";
import type { LockMessage } from "../diagnostics/messages.js";
import { printable } from "../printable.js";

/** Names of attributes, of spans and of metrics. */
export const ATTRIBUTES = {
  kind: "leasehold.kind",
  label: "leasehold.label",
  name: "leasehold.name",
  names: "leasehold.names",
  tries: "leasehold.tries",
  outcome: "leasehold.outcome",
  ahead: "leasehold.ahead",
  waitedMs: "leasehold.waited_ms",
  fence: "leasehold.fence",
  owner: "leasehold.owner",
  why: "leasehold.why",
  heldMs: "leasehold.held_ms",
  warnHoldMs: "leasehold.warn_hold_ms",
  memberState: "leasehold.member.state",
} as const;

const MAX_OWNER = 100;
const MAX_CLASS = 100;
const MAX_MESSAGE = 500;

/** What the spans of a lock say from their start. Only with `names` do they have its name, which may contain data of users. */
export function lockAttributes(message: LockMessage, names: boolean): Attributes {
  const attributes: Attributes = { [ATTRIBUTES.kind]: message.kind };
  if (message.label !== undefined) attributes[ATTRIBUTES.label] = message.label;
  if (!names) return attributes;
  attributes[ATTRIBUTES.name] = printable(message.name);
  if (message.names.length > 1) attributes[ATTRIBUTES.names] = message.names.map((name) => printable(name));
  return attributes;
}

/** The owner of most locks of a process is the same. */
const printableOwner = ((): ((owner: string) => string) => {
  let last = "";
  let shown = "";
  return (owner) => {
    if (owner !== last) shown = printable((last = owner), MAX_OWNER);
    return shown;
  };
})();

/** Who holds, or wanted to. A fence can exceed what a number represents exactly, so it is a string. */
export function holderAttributes(owner: string | undefined, fence: bigint | undefined): Attributes {
  const attributes: Attributes = {};
  if (owner !== undefined) attributes[ATTRIBUTES.owner] = printableOwner(owner);
  if (fence !== undefined) attributes[ATTRIBUTES.fence] = String(fence);
  return attributes;
}

/**
 * What a span records of an error: its class and its code. Messages of errors contain names of locks, so they are recorded only
 * with `names`.
 */
export function exceptionOf(error: unknown, names: boolean): Exception & { readonly name: string } {
  if (!(error instanceof Error)) return { name: typeof error };
  const code = "code" in error && typeof error.code === "string" ? { code: error.code } : {};
  const message = names ? { message: printable(error.message, MAX_MESSAGE) } : {};
  return { name: printable(error.name, MAX_CLASS), ...code, ...message };
}
