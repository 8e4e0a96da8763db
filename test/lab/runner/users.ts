import { BARRIERS, LATCHES, MARKS } from "../../../src/keys.js";
import { encode, endOf } from "../../support/clients/gateway-text.js";
import type { Member } from "./ground.js";

export interface User {
  readonly username: string;
  readonly password: string;
}

const ROOT: User = { username: "root", password: "root-secret" };
/** The user of the workers; its role has the same name. */
export const WORKER: User = { username: "worker", password: "worker-secret" };

/** A member that accepts requests as a user: after `login`, requests through `gateway` are made as that user. */
export type Guarded = Member & { login(user: User): void };

/** The users of an etcd, and whether it asks for passwords. */
export class Users {
  readonly #leader: () => Promise<Member>;
  #prefix = "";
  #on = false;

  /**
   * root, for nemesis and observer, and a user for the workers, who may do everything under `prefix`, and with what its names have
   * elsewhere, and nothing else.
   */
  static async add(
    members: readonly Guarded[],
    leader: () => Promise<Member>,
    prefix: string,
  ): Promise<Users> {
    const users = new Users(leader);
    users.#prefix = prefix;
    await users.#addUser(ROOT);
    await users.#ask("role/add", { name: WORKER.username });
    await users.grant(prefix);
    for (const keys of [MARKS, LATCHES, BARRIERS]) await users.grant(`${keys}${prefix}`);
    await users.addWorker();
    for (const member of members) member.login(ROOT);
    return users;
  }

  private constructor(leader: () => Promise<Member>) {
    this.#leader = leader;
  }

  /** Does etcd ask for passwords? */
  get on(): boolean {
    return this.#on;
  }

  /** The prefix of everything that the workers need. */
  get prefix(): string {
    return this.#prefix;
  }

  /** After authentication was switched off, no earlier token is valid. */
  async turn(on: boolean): Promise<void> {
    await this.#ask(on ? "enable" : "disable", {});
    this.#on = on;
  }

  /** Grants a prefix to the workers' role. */
  async grant(prefix: string): Promise<void> {
    const perm = { permType: "READWRITE", key: encode(prefix), range_end: encode(endOf(prefix)) };
    await this.#ask("role/grant", { name: WORKER.username, perm });
  }

  async revoke(prefix: string): Promise<void> {
    const range = { key: encode(prefix), range_end: encode(endOf(prefix)) };
    await this.#ask("role/revoke", { role: WORKER.username, ...range });
  }

  async addWorker(): Promise<void> {
    await this.#addUser(WORKER);
  }

  async deleteWorker(): Promise<void> {
    await this.#ask("user/delete", { name: WORKER.username });
  }

  /** Afterwards no token of the workers is valid, even if the same password is set again. */
  async changePassword(password = WORKER.password): Promise<void> {
    await this.#ask("user/changepw", { name: WORKER.username, password });
  }

  async #addUser({ username: name, password }: User): Promise<void> {
    await this.#ask("user/add", { name, password });
    // Only in etcd 3.6, root's role exists from the start.
    if (name === ROOT.username) await this.#ask("role/add", { name }).catch(() => undefined);
    await this.#ask("user/grant", { user: name, role: name });
  }

  async #ask(path: string, body: object): Promise<void> {
    const leader = await this.#leader();
    await leader.gateway(`/v3/auth/${path}`, body, { timeoutMs: 10_000 });
  }
}
