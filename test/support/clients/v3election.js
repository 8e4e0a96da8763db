import http from "node:http";
import { decode, encode } from "./gateway-text.js";
import { linesOf } from "./lines.js";
/** @import { EtcdMember } from "../etcd/etcd.js" */

/** A candidate of etcd's own election service, through its JSON gateway, on a lease that is never renewed. */
export class V3Candidate {
  #member;
  #lease;
  /** Whether the service has answered yet. */
  leads = false;
  /** What the service calls a leader key. @type {Promise<{ name: string, key: string, rev: string, lease: string }>} */
  #leader;

  /** @param {EtcdMember} member @param {string} name @param {string} value */
  static async campaign(member, name, value, { ttlSeconds = 60 } = {}) {
    const { ID } = await member.gateway("/v3/lease/grant", { TTL: ttlSeconds });
    return new V3Candidate(member, ID, { name: encode(name), lease: ID, value: encode(value) });
  }

  /** @param {EtcdMember} member @param {string} lease @param {object} request */
  constructor(member, lease, request) {
    this.#member = member;
    this.#lease = lease;
    this.#leader = member
      .gateway("/v3/election/campaign", request, { timeoutMs: 60_000 })
      .then(({ leader }) => {
        this.leads = true;
        return leader;
      });
    this.#leader.catch(() => {});
  }

  /** Its key, when it leads. @returns {Promise<string>} */
  async key() {
    return decode((await this.#leader).key);
  }

  /** @param {string} value */
  async proclaim(value) {
    await this.#member.gateway("/v3/election/proclaim", { leader: await this.#leader, value: encode(value) });
  }

  async resign() {
    await this.#member.gateway("/v3/election/resign", { leader: await this.#leader });
    await this.revoke();
  }

  async revoke() {
    await this.#member.gateway("/v3/lease/revoke", { ID: this.#lease });
  }
}

/**
 * The current leader according to the service; rejects with its own message if there is none.
 * @param {EtcdMember} member @param {string} name @returns {Promise<{ key: string, value: string }>}
 */
export async function v3Leader(member, name) {
  const { kv } = await member.gateway("/v3/election/leader", { name: encode(name) });
  return { key: decode(kv.key), value: decode(kv.value) };
}

/**
 * The values of the leaders that the service reports, until the loop is left.
 * @param {EtcdMember} member @param {string} name
 */
export async function* v3Observe(member, name) {
  const settings = { method: "POST", agent: /** @type {const} */ (false) };
  const response = await new Promise((resolve, reject) =>
    http
      .request(`${member.endpoint}/v3/election/observe`, settings, resolve)
      .on("error", reject)
      .end(JSON.stringify({ name: encode(name) })),
  );
  for await (const line of linesOf(response)) {
    const { result } = JSON.parse(line);
    yield decode(result.kv.value);
  }
}
