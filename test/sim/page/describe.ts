import type { LeaseAnswer, TxnAnswer, WatchAnswer } from "../../../src/etcd/port.js";
import type { Direction } from "../../../src/testing/memory/network/link.js";
import type { UnaryReply, UnaryRequest, WatchCommand } from "../../../src/testing/memory/protocol.js";
import type { Flight } from "./protocol.js";

type Described = Pick<Flight, "kind" | "text">;

const KINDS: Record<UnaryRequest["kind"], Described> = {
  txns: { kind: "txn", text: "txn" },
  kv: { kind: "txn", text: "request of another client" },
  administer: { kind: "read", text: "administer" },
  range: { kind: "read", text: "read" },
  compact: { kind: "txn", text: "compact" },
  grant: { kind: "lease", text: "grant lease" },
  revoke: { kind: "lease", text: "revoke lease" },
  timeToLive: { kind: "lease", text: "lease TTL" },
  authenticate: { kind: "read", text: "authenticate" },
};

/** A message in a few words. `what`: as the link's observer gets it. */
export function describe(what: unknown, direction: Direction): Described {
  if (typeof what === "bigint") return { kind: "keepalive", text: "keepalive" };
  if (typeof what !== "object" || what === null) return { kind: "link", text: String(what) };
  if ("reply" in what) return reply(what as { request: UnaryRequest; reply: UnaryReply });
  if (direction === "answer") return streamed(what as LeaseAnswer | WatchAnswer);
  if ("kind" in what) return requested(what as UnaryRequest);
  const command = what as WatchCommand;
  const text = "create" in command ? "watch" : "cancel" in command ? "cancel watch" : "progress?";
  return { kind: "watch", text };
}

function requested(request: UnaryRequest): Described {
  const { kind, text } = KINDS[request.kind] ?? { kind: "txn", text: request.kind };
  const several = request.kind === "txns" && request.txns.length > 1 ? `${request.txns.length} txns` : text;
  return { kind, text: several };
}

function reply({ request, reply: answer }: { request: UnaryRequest; reply: UnaryReply }): Described {
  const { kind, text } = KINDS[request.kind] ?? { kind: "txn", text: request.kind };
  if ("refused" in answer) return { kind, text: `${text}: refused` };
  if (request.kind !== "txns") return { kind, text: `${text}: ok` };
  const answers = answer.answer as readonly TxnAnswer[];
  const succeeded = answers.filter((each) => each.succeeded).length;
  if (answers.length > 1) return { kind, text: `${succeeded} of ${answers.length} txns succeeded` };
  return { kind, text: succeeded === 1 ? "txn: succeeded" : "txn: compare failed" };
}

function streamed(answer: LeaseAnswer | WatchAnswer): Described {
  if ("refused" in answer) return { kind: "link", text: "stream refused" };
  if ("ttlSeconds" in answer) return { kind: "keepalive", text: `TTL ${answer.ttlSeconds} s` };
  const { created, cancelled, events } = answer;
  if (created) return { kind: "watch", text: "watch created" };
  if (cancelled) return { kind: "watch", text: "watch cancelled" };
  if (events.length === 0) return { kind: "watch", text: "progress" };
  const [first] = events;
  return { kind: "event", text: events.length === 1 ? `event: ${first!.kind}` : `${events.length} events` };
}
