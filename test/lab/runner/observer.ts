// Records the history of etcd itself: every event under some prefixes, in revision order, from one watch per member.
import http from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { decode, encode, endOf } from "../../support/clients/gateway-text.js";
import { linesOf } from "../../support/clients/lines.js";
import type { Member } from "./ground.js";
import type { ServerEvent } from "./history.js";
import { now } from "./journal.js";

/** A member, as far as it is watched. */
type Watched = Pick<Member, "endpoint" | "headers">;

export class Observer {
  /** What happened, by revision. */
  readonly events: ServerEvent[] = [];
  /** The highest revision seen; everything before it was seen too, because each stream delivers all events in order. */
  revision = 0n;
  /** The last event of each key that exists. */
  readonly #living = new Map<string, ServerEvent>();
  readonly #watchers = new Set<() => void>();
  readonly #stopped = new AbortController();
  readonly #prefixes: readonly string[];
  readonly #following: Promise<void>[];

  /** Several members send the same events: one that is paused or killed hides nothing. */
  constructor(members: readonly Watched[], prefixes: string | readonly string[], from: bigint) {
    this.#prefixes = typeof prefixes === "string" ? [prefixes] : prefixes;
    this.#following = members.map((member) => this.#follow(member, from));
  }

  /** The puts of the existing keys under `prefix`, as far as they were seen, in create order. */
  puts(prefix: string): ServerEvent[] {
    const living = [...this.#living.values()].filter(({ key }) => key.startsWith(prefix));
    return living.sort((a, b) => Number(a.create - b.create));
  }

  /** The keys of `puts(prefix)`. */
  living(prefix: string): string[] {
    return this.puts(prefix).map(({ key }) => key);
  }

  /** Resolves with the keys that exist then; rejects after `timeoutMs`. */
  async untilLiving(
    prefix: string,
    enough: (count: number) => boolean,
    options: { timeoutMs: number },
  ): Promise<string[]> {
    if (await this.until(() => enough(this.living(prefix).length), options)) return this.living(prefix);
    const living = this.living(prefix).join(", ");
    throw new Error(`after ${options.timeoutMs} ms these live under ${prefix}: ${living}`);
  }

  /**
   * Resolves with true when `happened` is true, at the latest with the event that makes it true; with false if that
   * does not happen within `timeoutMs`.
   */
  until(happened: () => boolean, { timeoutMs }: { timeoutMs: number }): Promise<boolean> {
    if (happened()) return Promise.resolve(true);
    return new Promise((resolve) => {
      const end = (found: boolean) => {
        clearTimeout(late);
        this.#watchers.delete(look);
        resolve(found);
      };
      const look = () => happened() && end(true);
      const late = setTimeout(() => end(false), timeoutMs);
      this.#watchers.add(look);
    });
  }

  async stop(): Promise<void> {
    this.#stopped.abort();
    await Promise.all(this.#following);
  }

  async #follow(member: Watched, first: bigint): Promise<void> {
    const { signal } = this.#stopped;
    let from = first;
    while (!signal.aborted) {
      // What another stream has delivered in the meantime is not needed again, and may be compacted.
      if (this.revision >= from) from = this.revision + 1n;
      try {
        for await (const line of watchLines(member, this.#prefixes, from, signal))
          from = this.#take(line, from);
      } catch {
        // The member was killed: another stream delivers in the meantime, and this one resumes where it stopped.
      }
      await delay(50, undefined, { signal }).catch(() => {});
    }
  }

  /** Returns the next revision to ask for. */
  #take(line: string, from: bigint): bigint {
    const tSeen = now();
    const { result, error } = JSON.parse(line) as {
      result: { events?: WireEvent[]; canceled?: boolean };
      error?: unknown;
    };
    if (error !== undefined || result.canceled) throw new Error(`watch: ${line}`);
    const events = (result.events ?? []).map((event) => toServerEvent(event, tSeen));
    const news = events.filter(({ rev }) => rev > this.revision);
    for (const event of news) this.#add(event);
    if (news.length > 0) for (const look of this.#watchers) look();
    // All events of a revision arrive in one answer.
    return (events.at(-1)?.rev ?? from - 1n) + 1n;
  }

  #add(event: ServerEvent): void {
    this.revision = event.rev;
    if (!this.#prefixes.some((prefix) => event.key.startsWith(prefix))) return;
    this.events.push(event);
    if (event.type === "PUT") this.#living.set(event.key, event);
    else this.#living.delete(event.key);
  }
}

interface WireKeyValue {
  readonly key: string;
  readonly value?: string;
  readonly mod_revision: string;
  readonly create_revision?: string;
  readonly lease?: string;
}
interface WireEvent {
  readonly type?: "DELETE";
  readonly kv: WireKeyValue;
  readonly prev_kv?: WireKeyValue;
}

function toServerEvent({ type, kv, prev_kv: before }: WireEvent, tSeen: bigint): ServerEvent {
  // A DELETE carries the deleted key-value pair in prev_kv only.
  const of = type === "DELETE" ? before : kv;
  const lease = BigInt(of?.lease ?? 0).toString(16);
  const place = { key: decode(kv.key), create: BigInt(of?.create_revision ?? 0), lease };
  return { rev: BigInt(kv.mod_revision), type: type ?? "PUT", ...place, value: decode(kv.value), tSeen };
}

/** One watch for all prefixes, and so for what is between them: its events come in one order, and all of a revision together. */
async function* watchLines(member: Watched, prefixes: readonly string[], from: bigint, signal: AbortSignal) {
  const [first = "", ...rest] = prefixes.toSorted();
  const range = { key: encode(first), range_end: encode(endOf(rest.at(-1) ?? first)) };
  const body = JSON.stringify({ create_request: { ...range, start_revision: String(from), prev_kv: true } });
  const headers = await member.headers?.();
  const response = await new Promise<http.IncomingMessage>((resolve, reject) => {
    const settings = { method: "POST", agent: false as const, signal, ...(headers && { headers }) };
    http.request(`${member.endpoint}/v3/watch`, settings, resolve).on("error", reject).end(body);
  });
  yield* linesOf(response);
}
