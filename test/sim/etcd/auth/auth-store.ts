import type { Random } from "../../kernel/random.js";
import type { Scheduler } from "../../kernel/kernel.js";
import { intervalOf, type Interval } from "../bytes.js";
import type { Refusal } from "../types.js";
import type { Access } from "./permissions.js";
import {
  AUTH_DISABLED,
  INVALID_MANAGEMENT,
  NO_ROOT_ROLE,
  NO_ROOT_USER,
  OLD_REVISION,
  PERMISSION_DENIED,
  USER_EMPTY,
  WRONG_PASSWORD,
} from "./refusals.js";
import { type AuthInfo, JwtTokens, SimpleTokens, type TokenOptions, type Tokens } from "./tokens.js";
import { ROOT, Users } from "./users.js";

const LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
const TOKEN_LETTERS = 16;

/** Prefixes, by the kind of the permission. */
export type RoleOptions = Partial<Readonly<Record<Access | "readwrite", readonly string[]>>>;

export interface UserOptions {
  readonly password: string;
  readonly roles?: readonly string[];
}

export interface AuthOptions {
  /** By name. `root` has the role root. It need not be listed if authentication is enabled: its password is "root". */
  readonly users?: Readonly<Record<string, UserOptions>>;
  readonly roles?: Readonly<Record<string, RoleOptions>>;
  /** Default: simple tokens with etcd's default of five minutes. */
  readonly tokens?: TokenOptions;
  /** Default: authentication is enabled from the start. */
  readonly enabled?: boolean;
  /** How long etcd compares a password with its hash. Default: 60, as with etcd's default of `--bcrypt-cost`. */
  readonly passwordMs?: number;
}

export interface AuthStoreOptions {
  readonly scheduler: Scheduler;
  readonly random: Random;
  readonly auth?: AuthOptions | undefined;
}

const DEFAULT_TOKENS: TokenOptions = { kind: "simple", ttlMs: 300_000 };
const DEFAULT_PASSWORD_MS = 60;

/**
 * What the members of a cluster share of authentication (auth/store.go): users, roles, whether it is enabled, and the revision of
 * all that. Its methods are an administrator's requests; those with a `Refusal` change nothing then.
 */
export class AuthStore {
  readonly users = new Users();
  readonly #options: AuthStoreOptions;
  readonly #tokens: Tokens[] = [];
  #enabled = false;
  #revision = 1;
  #issued = 0;

  constructor(options: AuthStoreOptions) {
    this.#options = options;
    if (options.auth) this.#setUp(options.auth);
  }

  get enabled(): boolean {
    return this.#enabled;
  }

  get revision(): number {
    return this.#revision;
  }

  get passwordMs(): number {
    return this.#options.auth?.passwordMs ?? DEFAULT_PASSWORD_MS;
  }

  /** The tokens of one more member. Members share JSON web tokens. */
  newTokens(): Tokens {
    const { kind, ttlMs } = this.#options.auth?.tokens ?? DEFAULT_TOKENS;
    const [first] = this.#tokens;
    if (first && kind === "jwt") return first;
    const tokens =
      kind === "jwt"
        ? new JwtTokens(ttlMs, this.#options.scheduler)
        : new SimpleTokens(ttlMs, this.#options.scheduler);
    this.#tokens.push(tokens);
    return tokens;
  }

  /** No token is valid any longer, and nothing else changes. */
  forgetTokens(): void {
    for (const tokens of this.#tokens) tokens.clear();
  }

  checkPassword(username: string, password: string): Refusal | undefined {
    if (!this.#enabled) return AUTH_DISABLED;
    return this.users.isPassword(username, password) ? undefined : WRONG_PASSWORD;
  }

  /** A new token of a user, valid on every member. */
  issue(username: string): string {
    const { random, auth } = this.#options;
    let letters = "";
    for (let n = 0; n < TOKEN_LETTERS; n++) letters += LETTERS[random.int(LETTERS.length)]!;
    const token = `${letters}${auth?.tokens?.kind === "jwt" ? "-" : "."}${++this.#issued}`;
    for (const tokens of this.#tokens) tokens.add(token, { username, revision: this.#revision });
    return token;
  }

  /** isOpPermitted. */
  check({ username, revision }: AuthInfo, access: Access, range: Interval): Refusal | undefined {
    if (!this.#enabled) return undefined;
    if (revision === 0) return USER_EMPTY;
    if (revision < this.#revision) return OLD_REVISION;
    const { users } = this;
    return users.isRoot(username) || users.allows(username, access, range) ? undefined : PERMISSION_DENIED;
  }

  enable(): Refusal | undefined {
    if (this.#enabled) return undefined;
    if (!this.users.has(ROOT)) return NO_ROOT_USER;
    if (!this.users.isRoot(ROOT)) return NO_ROOT_ROLE;
    this.#enabled = true;
    for (const tokens of this.#tokens) tokens.enabled();
    return undefined;
  }

  disable(): void {
    if (!this.#enabled) return;
    this.#enabled = false;
    this.#revision++;
    for (const tokens of this.#tokens) tokens.clear();
  }

  /** An edit of users or roles. Those below protect root, or end tokens. */
  edit(change: (users: Users) => Refusal | "same" | undefined): Refusal | undefined {
    const result = change(this.users);
    if (result === "same") return undefined;
    if (result === undefined) this.#revision++;
    return result;
  }

  deleteRole(role: string): Refusal | undefined {
    if (this.#enabled && role === ROOT) return INVALID_MANAGEMENT;
    return this.edit((users) => users.deleteRole(role));
  }

  revokeRole(name: string, role: string): Refusal | undefined {
    if (this.#enabled && name === ROOT && role === ROOT) return INVALID_MANAGEMENT;
    return this.edit((users) => users.revokeRole(name, role));
  }

  deleteUser(name: string): Refusal | undefined {
    if (this.#enabled && name === ROOT) return INVALID_MANAGEMENT;
    return this.#forgetting(name, (users) => users.deleteUser(name));
  }

  changePassword(name: string, password: string): Refusal | undefined {
    return this.#forgetting(name, (users) => users.changePassword(name, password));
  }

  #forgetting(name: string, change: (users: Users) => Refusal | undefined): Refusal | undefined {
    const refusal = this.edit(change);
    if (!refusal) for (const tokens of this.#tokens) tokens.forgetUser(name);
    return refusal;
  }

  #setUp({ users = {}, roles = {}, enabled = true }: AuthOptions): void {
    for (const [role, rights] of Object.entries(roles)) {
      this.users.addRole(role);
      for (const type of ["read", "write", "readwrite"] as const)
        for (const prefix of rights[type] ?? [])
          this.users.grantPermission(role, { type, range: rangeOfPrefix(prefix) });
    }
    const root = { password: ROOT, roles: [ROOT] };
    for (const [name, { password, roles = [] }] of Object.entries({ ...(enabled && { root }), ...users })) {
      this.users.addUser(name, password);
      for (const role of name === ROOT ? [ROOT, ...roles] : roles) this.users.grantRole(name, role);
    }
    if (enabled) this.enable();
  }
}

/** All keys that begin with `prefix`. */
export function rangeOfPrefix(prefix: string): Interval {
  const bytes = Buffer.from(prefix);
  for (let last = bytes.length - 1; last >= 0; last--) {
    if (bytes[last]! === 0xff) continue;
    bytes[last]!++;
    return intervalOf(prefix, bytes.subarray(0, last + 1));
  }
  return { key: prefix === "" ? "\0" : intervalOf(prefix, undefined).key, end: "" };
}
