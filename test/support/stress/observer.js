// Records etcd's own truth: every event under a prefix, in revision order, from one watch per member.
import http from "node:http";
import { createInterface } from "node:readline";
import { setTimeout as delay } from "node:timers/promises";
import { now } from "./journal.js";
/** @import { ServerEvent } from "./history.js" */
/** @import { EtcdMember } from "../etcd.js" */

/** @param {string} text */
export const encode = (text) => Buffer.from(text).toString("base64");
/** @param {string | undefined} text */
export const decode = (text = "") => Buffer.from(text, "base64").toString();
/** The first key behind all keys with `prefix`. @param {string} prefix */
export const endOf = (prefix) =>
  prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);

export class Observer {
  /** What happened, by revision. @type {ServerEvent[]} */
  events = [];
  /** The last event of each key that lives. @type {Map<string, ServerEvent>} */ #living = new Map();
  /** @type {Set<() => void>} */ #watchers = new Set();
  /** The highest revision seen; everything before it was seen too, as each stream tells all in order. */
  revision = 0n;
  #stopped = new AbortController();
  #prefix;
  #following;

  /** @param {readonly EtcdMember[]} members @param {string} prefix @param {bigint} from first revision */
  constructor(members, prefix, from) {
    this.#prefix = prefix;
    // Several members tell the same events: one that is paused or killed hides nothing.
    this.#following = members.map((member) => this.#follow(member, from));
  }

  /** @param {string} prefix @returns {string[]} the keys that live under it, as far as was seen, in create order */
  living(prefix) {
    const living = [...this.#living.values()].filter(({ key }) => key.startsWith(prefix));
    return living.sort((a, b) => Number(a.create - b.create)).map(({ key }) => key);
  }

  /**
   * @param {string} prefix @param {(count: number) => boolean} enough @param {{ timeoutMs: number }} options
   * @returns {Promise<string[]>} the keys then; rejects after `timeoutMs`
   */
  async untilLiving(prefix, enough, options) {
    if (await this.until(() => enough(this.living(prefix).length), options)) return this.living(prefix);
    throw new Error(
      `after ${options.timeoutMs} ms these live under ${prefix}: ${this.living(prefix).join(", ")}`,
    );
  }

  /**
   * Resolves when `happened` is true of what was seen, at the latest with the event that makes it so.
   * @param {() => boolean} happened
   * @param {{ timeoutMs: number }} options
   * @returns {Promise<boolean>} false = not within `timeoutMs`
   */
  until(happened, { timeoutMs }) {
    if (happened()) return Promise.resolve(true);
    return new Promise((resolve) => {
      const end = (/** @type {boolean} */ found) => {
        clearTimeout(late);
        this.#watchers.delete(look);
        resolve(found);
      };
      const look = () => happened() && end(true);
      const late = setTimeout(() => end(false), timeoutMs);
      this.#watchers.add(look);
    });
  }

  async stop() {
    this.#stopped.abort();
    await Promise.all(this.#following);
  }

  /** @param {EtcdMember} member @param {bigint} from */
  async #follow(member, from) {
    const { signal } = this.#stopped;
    while (!signal.aborted) {
      try {
        for await (const line of watchLines(member, this.#prefix, from, signal))
          from = this.#take(line, from);
      } catch {
        // The member was killed: another stream tells meanwhile, and this one starts again where it stopped.
      }
      await delay(50, undefined, { signal }).catch(() => {});
    }
  }

  /** @param {string} line @param {bigint} from @returns {bigint} the next revision to ask for */
  #take(line, from) {
    const tSeen = now();
    const { result, error } = JSON.parse(line);
    if (error !== undefined) throw new Error(`watch: ${line}`);
    const events = (result.events ?? []).map((/** @type {any} */ event) => toServerEvent(event, tSeen));
    const news = events.filter((/** @type {ServerEvent} */ { rev }) => rev > this.revision);
    for (const event of news) this.#add(event);
    if (news.length > 0) for (const look of this.#watchers) look();
    // All events of a revision come in one answer.
    return events.length > 0 ? events.at(-1).rev + 1n : from;
  }

  /** @param {ServerEvent} event */
  #add(event) {
    this.events.push(event);
    this.revision = event.rev;
    if (event.type === "PUT") this.#living.set(event.key, event);
    else this.#living.delete(event.key);
  }
}

/** @param {any} event of the JSON gateway @param {bigint} tSeen @returns {ServerEvent} */
function toServerEvent({ type = "PUT", kv, prev_kv: before }, tSeen) {
  // A DELETE carries what it deleted in prev_kv only.
  const of = type === "PUT" ? kv : (before ?? {});
  const lease = BigInt(of.lease ?? 0).toString(16);
  const place = { key: decode(kv.key), create: BigInt(of.create_revision ?? 0), lease };
  return { rev: BigInt(kv.mod_revision), type, ...place, value: decode(kv.value), tSeen };
}

/** @param {EtcdMember} member @param {string} prefix @param {bigint} from @param {AbortSignal} signal */
async function* watchLines(member, prefix, from, signal) {
  const range = { key: encode(prefix), range_end: encode(endOf(prefix)) };
  const body = JSON.stringify({ create_request: { ...range, start_revision: String(from), prev_kv: true } });
  const response = await new Promise((resolve, reject) => {
    const settings = { method: "POST", agent: false, signal };
    http.request(`${member.endpoint}/v3/watch`, settings, resolve).on("error", reject).end(body);
  });
  yield* createInterface({ input: response, crlfDelay: Infinity });
}
