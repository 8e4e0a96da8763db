import type { LeaseAnswer, Operation, TxnAnswer, WatchAnswer } from "../etcd/port.js";
import type { LinkObserver, Message } from "./memory/network/link.js";
import { isRefusal, type UnaryReply, type UnaryRequest, type WatchCommand } from "./memory/protocol.js";
import { printable } from "../base/util/printable.js";

/** So many lines are kept: the last ones. */
const MOST = 1_000;

/** What happened between the clients and the members, and to them. It becomes text only when somebody asks. */
export class History {
  readonly #entries: {
    readonly at: number;
    readonly member: string;
    readonly text: () => string | undefined;
  }[] = [];

  constructor(private readonly now: () => number) {}

  add(member: string, text: () => string | undefined): void {
    if (this.#entries.length === 2 * MOST) this.#entries.splice(0, MOST);
    this.#entries.push({ at: this.now(), member, text });
  }

  /** Notes what arrives over the link to a member, and what is lost there. */
  observer(member: string): LinkObserver {
    const fates = { arrived: "", held: ": held back", lost: ": lost" };
    const ended: LinkObserver["ended"] = ({ what, direction }, how) => {
      const tell = (): string | undefined => {
        const text = textOf({ what, direction });
        return text === undefined ? undefined : `${text}${fates[how]}`;
      };
      // A batch takes much more memory than its text.
      const text = isBatch(what) ? tell() : undefined;
      this.add(member, text === undefined ? tell : saying(text));
    };
    return { sent: () => {}, ended };
  }

  toString(): string {
    const lines = this.#entries.flatMap(({ at, member, text }) => {
      const told = text();
      return told === undefined ? [] : [`${at.toFixed(0).padStart(9)} ms  ${member}  ${printable(told)}`];
    });
    return lines.slice(-MOST).join("\n");
  }
}

/** Outside of the function above, whose variables it would keep. */
const saying = (text: string) => (): string => text;

/** The answer to a request with several transactions. */
function isBatch(what: unknown): boolean {
  const { request } = (what ?? {}) as { readonly request?: UnaryRequest };
  return request?.kind === "txns" && request.txns.length > 1;
}

type CreateCommand = Extract<WatchCommand, { readonly create: unknown }>;

/** Undefined for what would hide the rest: requests, whose answers say what they were, and renewals. */
function textOf({ what, direction }: Omit<Message, "arrive">): string | undefined {
  if (typeof what !== "object" || what === null) return undefined;
  if ("reply" in what) {
    const { request, reply } = what as { request: UnaryRequest; reply: UnaryReply };
    return `${requestText(request)}: ${replyText(request, reply)}`;
  }
  if (direction === "answer") return streamText(what as WatchAnswer | LeaseAnswer);
  if ("create" in what) return `watch ${keyOf((what as CreateCommand).create.key)}`;
  return undefined;
}

function requestText(request: UnaryRequest): string {
  switch (request.kind) {
    case "txns":
      return request.txns.flatMap(({ success }) => success.map(operationText)).join(", ") || "compare";
    case "kv":
    case "administer":
      return request.kind;
    case "range":
      return `read ${keyOf(request.range.key)}`;
    case "grant":
      return `grant lease ${request.leaseId.toString(16)} for ${request.ttlSeconds} s`;
    case "revoke":
      return `revoke lease ${request.leaseId.toString(16)}`;
    case "timeToLive":
      return `look at lease ${request.leaseId.toString(16)}`;
    case "compact":
      return `compact to ${request.revision}`;
    case "authenticate":
      return `log ${request.username} in`;
  }
}

const operationText = (operation: Operation): string =>
  `${operation.kind === "range" ? "read" : operation.kind} ${keyOf(operation.key)}`;

function replyText(request: UnaryRequest, reply: UnaryReply): string {
  if (isRefusal(reply)) return `refused, ${reply.refused}`;
  if (request.kind !== "txns") return "done";
  const answers = reply.answer as readonly TxnAnswer[];
  return answers.every(({ succeeded }) => succeeded) ? "done" : "not done, for a comparison has failed";
}

function streamText(answer: WatchAnswer | LeaseAnswer): string | undefined {
  if (isRefusal(answer)) return `the stream ends: ${answer.refused}`;
  // Lease 0 is a question whether the stream lives.
  if ("ttlSeconds" in answer) {
    const isGone = answer.ttlSeconds <= 0 && answer.leaseId !== 0n;
    return isGone ? `no lease ${answer.leaseId.toString(16)} to renew` : undefined;
  }
  const events = answer.events.map(({ kind, kv }) => `${kind.toLowerCase()} of ${keyOf(kv.key)}`);
  return events.length === 0 ? undefined : `the watch sees ${events.join(", ")}`;
}

const keyOf = (key: string | Buffer): string => key.toString();
