// Which hosts there are, where the user's list does not say it alone: SRV records of DNS, and etcd's own list of its members.
import type { SrvRecord } from "node:dns";
import type { CheckedConnect } from "../base/options/connect.js";
import { checkHosts } from "../base/options/hosts.js";
import type { Clock, Timer } from "../base/util/clock.js";
import { inOwnContext } from "../base/util/own-context.js";
import type { Hosts } from "./hosts.js";
import { type CallOptions, type Member, type MembersAnswer, shared, UnansweredError } from "./port.js";

/** How often etcd is asked for its members while a connection lasts. */
const FOLLOW_MS = 10_000;
/** After failures of hosts, DNS is asked at most this often. */
const AGAIN_MS = 1000;
/** etcd advises seven members: https://etcd.io/docs/v3.6/faq/. A longer list is not etcd's. */
const MAX_HOSTS = 64;

export type ResolveSrv = (name: string) => Promise<readonly SrvRecord[]>;

const resolveSrv: ResolveSrv = (name) => process.getBuiltinModule("node:dns").promises.resolveSrv(name);

/** There is no such name, or it has no such record: https://nodejs.org/api/dns.html#error-codes */
const ABSENT: ReadonlySet<string> = new Set(["ENOTFOUND", "ENODATA"]);

/** "Very small", for a weight of 0. */
const LEAST = 0.001;

/** The lowest priority first. Among equals by chance, the sooner the more weight they have, so that clients spread: RFC 2782. */
function inTurn(records: readonly SrvRecord[], random: () => number): readonly SrvRecord[] {
  const drawn = records.map((record) => ({ record, at: -Math.log(1 - random()) / (record.weight || LEAST) }));
  drawn.sort((a, b) => a.record.priority - b.record.priority || a.at - b.at);
  return drawn.map(({ record }) => record);
}

/**
 * Keeps the list of hosts up to date. Hosts that the user has given stay in it: what DNS or etcd says, which may be the view of
 * another network, only adds to them.
 */
export class Membership {
  readonly #given: readonly string[];
  /** The name of SRV records, instead of hosts. */
  readonly #srv: string | undefined;
  readonly #secure: boolean;
  #resolved: readonly string[] = [];
  #learned: readonly string[] = [];
  #resolving: Promise<void> | undefined;
  #resolvedAt = -Infinity;
  /** Has answered, and is asked for the list. */
  #member: Member | undefined;
  #timer: Timer | undefined;
  #closed = false;

  // eslint-disable-next-line max-params -- made in one place
  constructor(
    private readonly options: CheckedConnect,
    private readonly hosts: Hosts,
    private readonly clock: Clock,
    private readonly resolve: ResolveSrv = resolveSrv,
  ) {
    const [first = ""] = options.hosts;
    this.#srv = first.startsWith("srv:") ? first.slice("srv:".length) : undefined;
    this.#given = this.#srv === undefined ? [...options.hosts] : [];
    this.#secure = options.credentials !== undefined || first.startsWith("https:");
  }

  /** No host is known yet. */
  get pending(): boolean {
    return this.#srv !== undefined && this.#resolved.length === 0;
  }

  /** Waits for hosts, within the limits of the call. @throws {UnansweredError} if DNS has none. */
  async find(options: CallOptions): Promise<void> {
    const host = this.options.hosts[0]!;
    const found = inOwnContext(() => this.#again()).catch((error: NodeJS.ErrnoException) => {
      // A name server that is silent or broken says nothing about the name.
      const isAbsent = error.code === undefined || ABSENT.has(error.code);
      const kind = isAbsent ? ({ kind: "unreachable" } as const) : {};
      throw new UnansweredError(error.message, { host, inDoubt: false, cause: error, ...kind });
    });
    const late = (): Error =>
      new UnansweredError(`no answer of DNS within ${Math.round(options.timeoutMs)} ms`, {
        host,
        inDoubt: false,
      });
    await shared(found, options, { clock: this.clock, late });
  }

  /** `member` has answered. */
  used(member: Member): void {
    if (!this.options.followMembers || member === this.#member) return;
    this.#member = member;
    inOwnContext(() => this.#ask());
  }

  /** The member in use has failed: those behind the name may be others now. */
  left(): void {
    this.#member = undefined;
    this.#timer?.cancel();
    if (this.#srv === undefined || this.clock.monotonic() - this.#resolvedAt < AGAIN_MS) return;
    inOwnContext(() => this.#again()).catch(() => undefined);
  }

  close(): void {
    this.#closed = true;
    this.#member = undefined;
    this.#timer?.cancel();
  }

  #ask(): void {
    const member = this.#member;
    if (member?.members === undefined) return;
    this.#timer = this.clock.after(FOLLOW_MS, () => this.#ask());
    this.#timer.unref?.();
    // The next question may be answered, and then by a member of this cluster.
    this.#learn(member, member.members({ timeoutMs: this.options.requestTimeoutMs })).catch(() => undefined);
  }

  async #learn(member: Member, asked: Promise<MembersAnswer>): Promise<void> {
    const { header, members } = await asked;
    if (this.#member !== member) return;
    this.hosts.check(member.host, header);
    const urls = members.filter(({ isLearner }) => !isLearner).flatMap(({ clientUrls }) => clientUrls);
    this.#learned = this.#usable(urls);
    this.#update();
  }

  #again(): Promise<void> {
    this.#resolving ??= this.#lookUp().finally(() => (this.#resolving = undefined));
    return this.#resolving;
  }

  async #lookUp(): Promise<void> {
    const name = this.#srv!;
    this.#resolvedAt = this.clock.monotonic();
    const records = inTurn(await this.resolve(name), () => this.clock.random());
    const scheme = this.#secure ? "https" : "http";
    const found = this.#usable(records.map((record) => `${scheme}://${record.name}:${record.port}`));
    if (found.length === 0) throw new Error(`the SRV records of ${name} name no host`);
    this.#resolved = found;
    this.#update();
  }

  /** Those that can be reached as the others are. Servers have sent them. */
  #usable(urls: readonly string[]): string[] {
    const context = { option: "a member", secure: this.#secure };
    const scheme = this.#secure ? "https:" : "http:";
    return urls.slice(0, MAX_HOSTS).flatMap((url) => {
      try {
        // One URL is one host, whatever a server has put into it.
        if (url.includes(",")) return [];
        return checkHosts(url, context).filter((host) => host.startsWith(scheme));
      } catch {
        return [];
      }
    });
  }

  #update(): void {
    if (this.#closed) return;
    this.hosts.replaceWith([...this.#resolved, ...this.#given, ...this.#learned]);
  }
}
