import { decode, encode } from "./gateway-text.js";
/** @import { EtcdMember } from "../etcd/etcd.js" */

/** etcd's own lock service, through its JSON gateway, on a lease that is never renewed. */
export class V3Lock {
  #member;
  #lease;
  /** Whether the service has answered yet. */
  holds = false;
  /** The key, which the service returns when it holds. @type {Promise<string>} */
  held;

  /** @param {EtcdMember} member @param {string} name @param {{ ttlSeconds?: number }} [options] */
  static async ask(member, name, { ttlSeconds = 60 } = {}) {
    const { ID } = await member.gateway("/v3/lease/grant", { TTL: ttlSeconds });
    return new V3Lock(member, name, ID);
  }

  /** @param {EtcdMember} member @param {string} name @param {string} lease */
  constructor(member, name, lease) {
    this.#member = member;
    this.#lease = lease;
    this.held = member
      .gateway("/v3/lock/lock", { name: encode(name), lease }, { timeoutMs: 60_000 })
      .then(({ key }) => {
        this.holds = true;
        return decode(key);
      });
    this.held.catch(() => {});
  }

  async unlock() {
    await this.#member.gateway("/v3/lock/unlock", { key: encode(await this.held) });
    await this.revoke();
  }

  /** What an operator does to a client that hangs: revokes its lease. */
  async revoke() {
    await this.#member.gateway("/v3/lease/revoke", { ID: this.#lease });
  }
}
