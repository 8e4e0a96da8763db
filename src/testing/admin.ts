import { setTimeout as delay } from "node:timers/promises";
import { ask, base64, fromBase64, metric, RefusedError } from "./gateway.js";
import type { Member } from "./member.js";
import type { Leftovers } from "./test-etcd.js";

/** How long a request looks for a member that answers. */
const LIMIT_MS = 10_000;
const PAUSE_MS = 50;
const FINAL = /not found|user name is empty|permission denied/;

interface Answer<T> {
  readonly value: T;
  /** Whether an attempt before may have been executed too. */
  readonly repeated: boolean;
}

/** Requests to the members past the links: what a test does behind its client's back. */
export class Admin {
  readonly #members: readonly Member[];
  readonly #isPaused: (member: Member) => boolean;
  readonly #over: AbortSignal;

  /** `over` ends the search for a member that answers. */
  constructor(members: readonly Member[], isPaused: (member: Member) => boolean, over: AbortSignal) {
    this.#members = members;
    this.#isPaused = isPaused;
    this.#over = over;
  }

  async revoke(leaseId: bigint): Promise<void> {
    const path = "/v3/lease/revoke";
    await this.#ask(path, { ID: String(leaseId) }).catch((error: unknown) => {
      if (!(error instanceof NotFoundError)) throw error;
      if (!error.repeated) throw new Error(`etcd has no lease ${leaseId.toString(16)}`, { cause: error });
    });
  }

  /** Deletes the keys if they have this create revision. @returns whether they had */
  async remove(keys: readonly string[], revision: bigint): Promise<boolean> {
    const body = {
      compare: keys.map((key) => ({
        ...{ target: "CREATE", result: "EQUAL", key: base64(key) },
        create_revision: String(revision),
      })),
      success: keys.map((key) => ({ request_delete_range: { key: base64(key) } })),
    };
    const { value, repeated } = await this.#ask<{ succeeded?: boolean }>("/v3/kv/txn", body);
    return value.succeeded === true || repeated;
  }

  async keys(prefix: string): Promise<string[]> {
    const body = { key: base64(prefix || "\0"), range_end: endOf(prefix), keys_only: true };
    const { value } = await this.#ask<{ kvs?: { key: string }[] }>("/v3/kv/range", body);
    return (value.kvs ?? []).map(({ key }) => fromBase64(key));
  }

  async leftovers(): Promise<Leftovers> {
    const keys = await this.keys("");
    const { value } = await this.#ask<{ leases?: { ID: string }[] }>("/v3/lease/leases", {});
    const watches = await Promise.all(
      this.#awake().map(({ address }) => metric(address, "etcd_debugging_mvcc_watcher_total").catch(() => 0)),
    );
    const found: Omit<Leftovers, "toJSON"> = {
      keys,
      leases: (value.leases ?? []).map(({ ID }) => BigInt(ID)),
      watches: watches.reduce((sum, count) => sum + count, 0),
    };
    const toJSON = (): Record<string, unknown> => ({ ...found, leases: found.leases.map(String) });
    // Not enumerable, so that logs and comparisons show only the data.
    return Object.defineProperty(found, "toJSON", { value: toJSON }) as Leftovers;
  }

  /** The index of the member that says that it leads in the highest term. */
  async leader(): Promise<number> {
    for (const until = performance.now() + LIMIT_MS; performance.now() < until; await this.#pause()) {
      const views = await Promise.all(this.#awake().map((member) => statusOf(member)));
      const known = views.flatMap((view) => view ?? []).sort((a, b) => b.term - a.term);
      const found = known.find(({ leads, term }) => leads && term === known[0]?.term);
      if (found) return this.#members.indexOf(found.member);
    }
    throw new Error(`No member leads within ${LIMIT_MS} ms`);
  }

  #awake(): readonly Member[] {
    return this.#members.filter((member) => member.running && !this.#isPaused(member));
  }

  /** Asks one member after the other, until one of them answers. */
  async #ask<T>(path: string, body: object): Promise<Answer<T>> {
    let failure: unknown = new Error("every member is paused or killed");
    let repeated = false;
    for (const until = performance.now() + LIMIT_MS; performance.now() < until; await this.#pause()) {
      const members = this.#awake();
      if (members.length === 0) break;
      for (const { address } of members) {
        try {
          return { value: await ask<T>(address, path, body), repeated };
        } catch (error) {
          if (error instanceof RefusedError && FINAL.test(error.message))
            throw new NotFoundError(error, repeated);
          [failure, repeated] = [error, true];
        }
      }
    }
    throw new Error(`No answer of etcd: ${(failure as Error).message}`, { cause: failure });
  }

  async #pause(): Promise<void> {
    await delay(PAUSE_MS, undefined, { signal: this.#over }).catch(() => {
      throw this.#over.reason;
    });
  }
}

/** etcd's last word. */
class NotFoundError extends Error {
  constructor(
    cause: Error,
    readonly repeated: boolean,
  ) {
    super(`etcd has refused: ${cause.message}`, { cause });
  }
}

interface Status {
  readonly header: { readonly member_id: string; readonly raft_term: string };
  readonly leader: string;
}

async function statusOf(member: Member) {
  try {
    const { header, leader } = await ask<Status>(member.address, "/v3/maintenance/status", {});
    return [{ member, leads: header.member_id === leader, term: Number(header.raft_term) }];
  } catch {
    return undefined;
  }
}

/** The end of the range of keys with this prefix, in base64; "\0" is etcd's word for no end. */
function endOf(prefix: string): string {
  const bytes = Buffer.from(prefix);
  for (let last = bytes.length - 1; last >= 0; last--) {
    const byte = bytes[last] ?? 0;
    if (byte === 0xff) continue;
    bytes[last] = byte + 1;
    return bytes.subarray(0, last + 1).toString("base64");
  }
  return base64("\0");
}
