import type { Scheduler } from "./event-queue.js";
import {
  AUTH_DISABLED,
  INVALID_MANAGEMENT,
  NO_ROOT_ROLE,
  NO_ROOT_USER,
  OLD_REVISION,
  PERMISSION_DENIED,
  PERMISSION_NOT_GRANTED,
  ROLE_EXISTS,
  ROLE_NOT_FOUND,
  ROLE_NOT_GRANTED,
  type Refusal,
  USER_EMPTY,
  USER_EXISTS,
  USER_NOT_FOUND,
  WRONG_PASSWORD,
} from "./protocol.js";
import type { Random } from "./random.js";
import { type Interval, contains, intervalOf } from "./store.js";

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

export const ROOT = "root";

interface User {
  /** `undefined`: he cannot log in. */
  password: string | undefined;
  readonly roles: Set<string>;
}

const isSame = (a: Interval, b: Interval): boolean => a.key === b.key && a.end === b.end;

/** Users and roles (auth/store.go). An edit without effect returns the reason. */
export class Users {
  readonly #users = new Map<string, User>();
  readonly #roles = new Map<string, Permission[]>();
  /** By user, until the next edit. */
  readonly #merged = new Map<string, Permissions>();

  has(name: string): boolean {
    return this.#users.has(name);
  }

  isRoot(name: string): boolean {
    return this.#users.get(name)?.roles.has(ROOT) ?? false;
  }

  isPassword(name: string, password: string): boolean {
    return this.#users.has(name) && this.#users.get(name)!.password === password;
  }

  allows(name: string, access: Access, range: Interval): boolean {
    const user = this.#users.get(name);
    if (!user) return false;
    let merged = this.#merged.get(name);
    if (!merged) {
      merged = new Permissions([...user.roles].flatMap((role) => this.#roles.get(role) ?? []));
      this.#merged.set(name, merged);
    }
    return merged.allows(access, range);
  }

  /** Sorted, as the other lists are. */
  get names(): readonly string[] {
    return [...this.#users.keys()].sort();
  }

  get roles(): readonly string[] {
    return [...this.#roles.keys()].sort();
  }

  rolesOf(name: string): readonly string[] | undefined {
    const user = this.#users.get(name);
    return user && [...user.roles].sort();
  }

  permissionsOf(role: string): readonly Permission[] | undefined {
    const permissions = this.#roles.get(role);
    return permissions && [...permissions].sort((a, b) => (a.range.key < b.range.key ? -1 : 1));
  }

  addUser(name: string, password: string | undefined): Refusal | undefined {
    if (this.#users.has(name)) return USER_EXISTS;
    this.#users.set(name, { password, roles: new Set() });
    return undefined;
  }

  deleteUser(name: string): Refusal | undefined {
    return this.#users.delete(name) ? this.#edited() : USER_NOT_FOUND;
  }

  changePassword(name: string, password: string): Refusal | undefined {
    const user = this.#users.get(name);
    if (!user) return USER_NOT_FOUND;
    user.password = password;
    return undefined;
  }

  /** "same": the user has the role already. */
  grantRole(name: string, role: string): Refusal | "same" | undefined {
    const user = this.#users.get(name);
    if (!user) return USER_NOT_FOUND;
    if (role !== ROOT && !this.#roles.has(role)) return ROLE_NOT_FOUND;
    if (user.roles.has(role)) return "same";
    user.roles.add(role);
    return this.#edited();
  }

  revokeRole(name: string, role: string): Refusal | undefined {
    const user = this.#users.get(name);
    if (!user) return USER_NOT_FOUND;
    return user.roles.delete(role) ? this.#edited() : ROLE_NOT_GRANTED;
  }

  addRole(role: string): Refusal | undefined {
    if (this.#roles.has(role)) return ROLE_EXISTS;
    this.#roles.set(role, []);
    return undefined;
  }

  deleteRole(role: string): Refusal | undefined {
    if (!this.#roles.delete(role)) return ROLE_NOT_FOUND;
    for (const { roles } of this.#users.values()) roles.delete(role);
    return this.#edited();
  }

  /** A permission for the same range is replaced. */
  grantPermission(role: string, permission: Permission): Refusal | undefined {
    const permissions = this.#roles.get(role);
    if (!permissions) return ROLE_NOT_FOUND;
    const other = permissions.findIndex(({ range }) => isSame(range, permission.range));
    if (other === -1) permissions.push(permission);
    else permissions[other] = permission;
    return this.#edited();
  }

  revokePermission(role: string, range: Interval): Refusal | undefined {
    const permissions = this.#roles.get(role);
    if (!permissions) return ROLE_NOT_FOUND;
    const index = permissions.findIndex((permission) => isSame(permission.range, range));
    if (index === -1) return PERMISSION_NOT_GRANTED;
    permissions.splice(index, 1);
    return this.#edited();
  }

  #edited(): undefined {
    this.#merged.clear();
    return undefined;
  }
}

export type Access = "read" | "write";

/** The right of a role to a range of keys. */
export interface Permission {
  readonly type: Access | "readwrite";
  /** An end of "" means everything from the key on. */
  readonly range: Interval;
}

/** A range with an end. */
interface Span {
  readonly key: string;
  readonly end: string;
}

/** The ranges that the roles of a user add up to (auth/range_perm_cache.go). */
export class Permissions {
  readonly #read: readonly Span[];
  readonly #write: readonly Span[];

  constructor(all: readonly Permission[]) {
    this.#read = all.filter(({ type }) => type !== "write").map(spanOf);
    this.#write = all.filter(({ type }) => type !== "read").map(spanOf);
    for (const spans of [this.#read, this.#write] as Span[][]) spans.sort((a, b) => (a.key < b.key ? -1 : 1));
  }

  allows(access: Access, range: Interval): boolean {
    const spans = access === "read" ? this.#read : this.#write;
    if (range.end === undefined) return spans.some((span) => contains(span, range.key));
    return covers(spans, { key: range.key, end: range.end });
  }
}

const spanOf = ({ range: { key, end } }: Permission): Span => ({ key, end: end ?? `${key}\0` });

/** Whether a key lies before an end. */
const isBefore = (key: string, end: string): boolean => end === "" || key < end;
const isEndBefore = (a: string, b: string): boolean => a !== "" && (b === "" || a < b);

/** Ranges that adjoin cover a range together (Contains in pkg/adt/interval_tree.go). `spans` are sorted by key. */
function covers(spans: readonly Span[], { key, end }: Span): boolean {
  let reached: string | undefined;
  for (const span of spans) {
    if (!isBefore(span.key, end) || !isBefore(key, span.end)) continue;
    if (reached === undefined) {
      if (span.key > key) return false;
      reached = span.end;
    } else if (reached !== "" && reached < span.key) break;
    else if (isEndBefore(reached, span.end)) reached = span.end;
  }
  return reached !== undefined && !isEndBefore(reached, end);
}

/** Who makes a request, and the revision of the auth store that the token vouches for. 0: no user. */
export interface AuthInfo {
  readonly username: string;
  readonly revision: number;
}

export const NO_USER: AuthInfo = { username: "", revision: 0 };

/** How often etcd checks for expired simple tokens (simpleTokenTTLResolution in auth/simple_token.go). */
const TICK_MS = 1000;

export interface TokenOptions {
  /** Use extends the life of a simple token. Each change of users and roles makes a JWT stale. */
  readonly kind: "simple" | "jwt";
  readonly ttlMs: number;
}

/** The tokens that a member accepts. */
export interface Tokens {
  add(token: string, info: AuthInfo): void;
  /** `undefined`: the token is invalid. */
  info(token: string, revision: number): AuthInfo | undefined;
  forgetUser(username: string): void;
  /** Authentication was disabled. */
  clear(): void;
  /** Authentication was enabled. */
  enabled(): void;
}

interface SimpleToken {
  readonly username: string;
  end: number;
}

/**
 * Simple tokens (auth/simple_token.go): each member has its own table, and only the member that is used extends the life of a
 * token. A loop deletes expired tokens: they live up to a second longer.
 */
export class SimpleTokens implements Tokens {
  readonly #tokens = new Map<string, SimpleToken>();
  #loopStart: number;

  constructor(
    private readonly ttlMs: number,
    private readonly scheduler: Scheduler,
  ) {
    this.#loopStart = scheduler.now;
  }

  add(token: string, { username }: AuthInfo): void {
    const { now } = this.scheduler;
    for (const [other, found] of this.#tokens) if (now >= this.#deletion(found)) this.#tokens.delete(other);
    this.#tokens.set(token, { username, end: now + this.ttlMs });
  }

  info(token: string, revision: number): AuthInfo | undefined {
    const found = this.#tokens.get(token);
    if (!found) return undefined;
    const { now } = this.scheduler;
    if (now >= this.#deletion(found)) {
      this.#tokens.delete(token);
      return undefined;
    }
    found.end = now + this.ttlMs;
    return { username: found.username, revision };
  }

  forgetUser(username: string): void {
    for (const [token, found] of this.#tokens) if (found.username === username) this.#tokens.delete(token);
  }

  clear(): void {
    this.#tokens.clear();
  }

  enabled(): void {
    this.#loopStart = this.scheduler.now;
  }

  /** The first run of the loop after the end. */
  #deletion({ end }: SimpleToken): number {
    return this.#loopStart + (Math.floor((end - this.#loopStart) / TICK_MS) + 1) * TICK_MS;
  }
}

/** JSON web tokens (auth/jwt.go): they contain all that a member needs to know. */
export class JwtTokens implements Tokens {
  readonly #tokens = new Map<string, AuthInfo & { readonly end: number }>();

  constructor(
    private readonly ttlMs: number,
    private readonly scheduler: Scheduler,
  ) {}

  add(token: string, info: AuthInfo): void {
    for (const [other, { end }] of this.#tokens) if (this.scheduler.now >= end) this.#tokens.delete(other);
    this.#tokens.set(token, { ...info, end: this.scheduler.now + this.ttlMs });
  }

  info(token: string): AuthInfo | undefined {
    const found = this.#tokens.get(token);
    return found && this.scheduler.now < found.end ? found : undefined;
  }

  forgetUser(): void {}
  clear(): void {}
  enabled(): void {}
}
