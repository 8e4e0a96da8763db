// What a test does behind the back of the clients of an etcd outside of this process: it asks the members by their JSON gateway, past
// the links.
import http from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import type { Address } from "./link.js";
import {
  asLeftovers,
  type Backdoor,
  type Fleet,
  type Leftovers,
  type Member,
  type Surroundings,
} from "./running-etcd.js";

/** A member outside of this process. */
export interface ServerMember extends Member {
  /** Where it answers, past the link. */
  readonly address: Address;
}

/** etcd has answered, and refused. */
class RefusedError extends Error {}

const ANSWER_MS = 2_000;

/** One request on its own connection: a pooled one may lead to a process that has been killed since. */
function send({ host, port }: Address, path: string, body?: object): Promise<string> {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.timeout(ANSWER_MS);
    const method = body === undefined ? "GET" : "POST";
    const request = http.request({ host, port, path, method, signal, agent: false }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => (text += chunk));
      response.on("error", reject);
      response.on("end", () => {
        if (response.statusCode === 200) resolve(text);
        else reject(new RefusedError(`${path}: ${response.statusCode} ${text}`));
      });
    });
    request.on("error", reject);
    request.end(body === undefined ? undefined : JSON.stringify(body));
  });
}

/** POST to etcd's JSON gateway, with keys in base64 and numbers of 64 bits as text. */
async function ask<T>(address: Address, path: string, body: object): Promise<T> {
  return JSON.parse(await send(address, path, body)) as T;
}

/** What is wrong with the member; empty if it has confirmed a read with a majority. */
export async function wrongWith(address: Address): Promise<string> {
  return ask(address, "/v3/kv/range", { key: base64("\0") }).then(() => "", String);
}

/** One of etcd's metrics; 0 if it has none of this name. */
async function metric(address: Address, name: string): Promise<number> {
  const lines = (await send(address, "/metrics")).split("\n");
  return Number(lines.find((line) => line.startsWith(`${name} `))?.slice(name.length + 1) ?? 0);
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const fromBase64 = (text: string): string => Buffer.from(text, "base64").toString();

/** How long a request looks for a member that answers. */
const LIMIT_MS = 10_000;
const PAUSE_MS = 50;
const FINAL = /not found|user name is empty|permission denied/;

interface Answer<T> {
  readonly value: T;
  /** Whether an attempt before may have been executed too. */
  readonly repeated: boolean;
}

const POLL_MS = 20;

/** For an etcd outside of this process. */
export const surroundingsOf = ({ members }: Fleet<ServerMember>): Surroundings => ({
  backdoor: (isPaused, over) => new Admin(members, isPaused, over),
  async until(is, limitMs, over) {
    for (const limit = performance.now() + limitMs; !(await is()); await delay(POLL_MS)) {
      over.throwIfAborted();
      if (performance.now() >= limit) return false;
    }
    return true;
  },
});

/** Requests to the members past the links: what a test does behind its client's back. */
class Admin implements Backdoor {
  readonly #members: readonly ServerMember[];
  readonly #isPaused: (member: Member) => boolean;
  readonly #over: AbortSignal;

  /** `over` ends the search for a member that answers. */
  constructor(members: readonly ServerMember[], isPaused: (member: Member) => boolean, over: AbortSignal) {
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
        target: "CREATE",
        result: "EQUAL",
        key: base64(key),
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
    return asLeftovers({
      keys,
      leases: (value.leases ?? []).map(({ ID }) => BigInt(ID)),
      watches: watches.reduce((sum, count) => sum + count, 0),
    });
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

  #awake(): readonly ServerMember[] {
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

async function statusOf(member: ServerMember) {
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
