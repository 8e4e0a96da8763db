import type { KeepaliveStream, LeaseAnswer, WatchAnswer, WatchStream } from "../../../../../src/etcd/port.js";
import { Normalizer, textOfError } from "../../../fidelity/running/normalize.js";
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
  /** What its watches were told, by the number of the watch. */
  readonly events = new Map<number, string[]>();
  readonly #text: Normalizer;
  readonly #connection: Connection;
  #keepalive: KeepaliveStream | undefined;
  #watch: WatchStream | undefined;
  #told: ((text: string) => void) | undefined;
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

  /** The next renewal and the next watch open new streams. The others stay open: what their watches are told may be on its way. */
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
      answer: (answer: LeaseAnswer) => this.#told?.(this.#text.lease(answer)),
      ended: (error) => {
        this.#keepalive = undefined;
        this.#told?.(`ended: ${textOfError(error)}`);
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
        this.#told?.(`ended: ${textOfError(error)}`);
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
    else this.#told?.(cancelReason ? `${text}: ${this.#connection.member.failure(cancelReason).name}` : text);
  }

  /** What a stream says next. A stream that says nothing is left. */
  async #next(send: () => void): Promise<string> {
    let text: string | undefined;
    const told = new Promise<void>((resolve) => {
      this.#told = (answer) => {
        text = answer;
        resolve();
      };
    });
    send();
    await this.subject.wait(told, SILENCE_MS);
    this.#told = undefined;
    if (text === undefined) this.leaveStreams();
    return text ?? "silence";
  }
}
