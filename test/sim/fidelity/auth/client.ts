import type { KeepaliveStream, LeaseAnswer, WatchAnswer, WatchStream } from "../../../../src/etcd/port.js";
import { Normalizer, textOfError } from "../running/normalize.js";
import type { Ask } from "./steps.js";
import type { AuthSubject, Connection } from "./subject.js";

const OPTIONS = { timeoutMs: 20_000 };
/** How long a stream may stay silent. */
const SILENCE_MS = 1500;
/** No lease expires. */
const TTL_SECONDS = 3600;

/** One client of a program: a token, a keepalive stream, and a stream of watches. */
export class Client {
  token: string | undefined;
  /** The events of its watches, by the number of the watch. */
  readonly events = new Map<number, string[]>();
  readonly #text: Normalizer;
  readonly #connection: Connection;
  #keepalive: KeepaliveStream | undefined;
  #watch: WatchStream | undefined;
  #answered: ((text: string) => void) | undefined;
  #watches = 0;
  readonly #streams = new Set<{ close(): void }>();

  /** `start`: the revision at which the program starts. */
  constructor(
    private readonly subject: AuthSubject,
    start = 0n,
  ) {
    this.#text = new Normalizer(start);
    this.#connection = subject.connect(() => this.token);
  }

  async login(user: string, password: string): Promise<string> {
    const { member } = this.#connection;
    return this.#answer(
      member.authenticate(user, password, OPTIONS).then((token) => {
        this.token = token;
        return "a token";
      }),
    );
  }

  /** The next renewal and the next watch open new streams. The others stay open: events of their watches may be in transit. */
  leaveStreams(): void {
    this.#keepalive = this.#watch = undefined;
  }

  close(): void {
    for (const stream of this.#streams) stream.close();
  }

  ask(ask: Ask): Promise<string> {
    if (ask.kind === "renew") return this.#renew(ask.leaseId);
    if (ask.kind === "watch") return this.#create(ask.key, ask.end);
    return this.#answer(this.#call(ask));
  }

  async #call(ask: Exclude<Ask, { kind: "renew" | "watch" }>): Promise<string> {
    const { member, compact } = this.#connection;
    switch (ask.kind) {
      case "txns":
        return this.#text.txns(await member.txns(ask.txns, OPTIONS));
      case "range": {
        const answer = await member.range(ask.range, OPTIONS);
        return `${this.#text.header(answer.header)} ${this.#text.range(answer)}`;
      }
      case "grant":
        return this.#text.lease(await member.grant(ask.leaseId, TTL_SECONDS, OPTIONS));
      case "revoke":
        await member.revoke(ask.leaseId, OPTIONS);
        return "ok";
      case "timeToLive":
        return this.#timeToLive(ask.leaseId, ask.withoutKeys);
      case "compact":
        return compact(ask.revision);
    }
  }

  async #timeToLive(leaseId: bigint, withoutKeys: boolean): Promise<string> {
    const { member } = this.#connection;
    const { header, ttlSeconds, keys } = await member.timeToLive(leaseId, { ...OPTIONS, withoutKeys });
    const names = keys.map(String).sort().join();
    return `${this.#text.header(header)} ${ttlSeconds > 0 ? "lives" : "-"} [${names}]`;
  }

  async #answer(call: Promise<string>): Promise<string> {
    await this.subject.wait(call, OPTIONS.timeoutMs);
    return call.catch(textOfError);
  }

  #renew(leaseId: bigint): Promise<string> {
    this.#keepalive ??= this.#connection.member.keepalive({
      answer: (answer: LeaseAnswer) => this.#answered?.(this.#text.lease(answer)),
      ended: (error) => {
        this.#keepalive = undefined;
        this.#answered?.(`ended: ${textOfError(error)}`);
      },
    });
    const stream = this.#keepalive;
    this.#streams.add(stream);
    return this.#next(() => stream.renew(leaseId));
  }

  #create(key: string, end: string | undefined): Promise<string> {
    this.#watch ??= this.#connection.member.watch({
      answer: (answer) => this.#watched(answer),
      ended: (error) => {
        this.#watch = undefined;
        this.#answered?.(`ended: ${textOfError(error)}`);
      },
    });
    const stream = this.#watch;
    this.#streams.add(stream);
    const range = { key, ...(end !== undefined && { end }) };
    const watchId = ++this.#watches;
    return this.#next(() => stream.create({ watchId, ...range, startRevision: 0n, events: "ALL" }));
  }

  #watched(answer: WatchAnswer): void {
    const { watchId, created, cancelReason, events } = answer;
    const text = this.#text.watch(answer);
    if (!created)
      this.events.set(watchId, [
        ...(this.events.get(watchId) ?? []),
        ...events.map((each) => this.#text.event(each)),
      ]);
    else
      this.#answered?.(
        cancelReason ? `${text}: ${this.#connection.member.failure(cancelReason).name}` : text,
      );
  }

  /** The next answer of a stream. A stream that stays silent is left. */
  async #next(send: () => void): Promise<string> {
    let text: string | undefined;
    const answered = new Promise<void>((resolve) => {
      this.#answered = (answer) => {
        text = answer;
        resolve();
      };
    });
    send();
    await this.subject.wait(answered, SILENCE_MS);
    this.#answered = undefined;
    if (text === undefined) this.leaveStreams();
    return text ?? "silence";
  }
}
