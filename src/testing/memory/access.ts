import type { WatchRequest } from "../../etcd/port.js";
import type { Scheduler } from "./event-queue.js";
import { type KvRequest, branches, checkKv, onlyReads, puts } from "./kv.js";
import type { Leases } from "./leases.js";
import {
  INVALID_TOKEN,
  type MemberRequest,
  NO_SPACE,
  OLD_REVISION,
  PERMISSION_DENIED,
  type Refusal,
  USER_EMPTY,
  USER_NOT_FOUND,
  type UnaryReply,
  isRefusal,
} from "./protocol.js";
import type { AuthQuirks } from "./quirks.js";
import { type Interval, intervalOf } from "./store.js";
import { type AuthInfo, type AuthStore, NO_USER, type Tokens } from "./users.js";

export interface AccessOptions {
  readonly auth: AuthStore;
  readonly quota: Quota;
  readonly leases: Leases;
  readonly quirks: AuthQuirks;
  readonly scheduler: Scheduler;
}

/** What one member lets pass: tokens, permissions, and the quota. */
export class AccessControl {
  readonly #options: AccessOptions;
  readonly #tokens: Tokens;

  constructor(options: AccessOptions) {
    this.#options = options;
    this.#tokens = options.auth.newTokens();
  }

  get auth(): AuthStore {
    return this.#options.auth;
  }

  /** Neither authentication nor the quota has an effect. */
  get #idle(): boolean {
    return !this.#checksTokens && this.#options.quota.idle;
  }

  get #checksTokens(): boolean {
    const { auth, quirks } = this.#options;
    return auth.enabled || quirks.tokensAlwaysChecked;
  }

  /**
   * What the member that gets a request checks before it proposes it: the size of the backend, then the request itself, then the
   * token. Returns who makes the request, or undefined if no permission and no quota has to be checked later.
   */
  admit(request: MemberRequest): Refusal | AuthInfo | undefined {
    if (this.#options.quota.rejects(request)) return NO_SPACE;
    // What etcd rejects before it checks the token (api/v3rpc/key.go).
    const malformed = request.kind === "kv" ? checkKv(request.request) : undefined;
    if (malformed) return malformed;
    if (this.#idle) return undefined;
    if (this.#ignoresTokens(request)) return NO_USER;
    const info = this.infoOf(request.token);
    return isRefusal(info) ? info : (this.#checkUser(request, info) ?? info);
  }

  /** Checks and executes a request that is applied. */
  apply(request: MemberRequest, info: AuthInfo, run: () => object): object {
    const refusal = this.decide(request, info);
    if (refusal) return refusal;
    const answer = run();
    return !isRefusal(answer) && this.#options.quota.crosses(request) ? NO_SPACE : answer;
  }

  /**
   * What is checked when a request is applied: the alarm, then permissions. Users and roles are not part of the log here: a
   * request that goes through raft is decided once, when it is committed (`Cluster.committed`), and each member applies that.
   */
  decide(request: MemberRequest, info: AuthInfo): Refusal | undefined {
    const { quota, auth, quirks } = this.#options;
    const isOfKeys = request.kind === "kv";
    // Reads do not go through raft.
    const readonly = isOfKeys && onlyReads(request.request);
    if (quota.isCapped(request)) return NO_SPACE;
    const isWrite = (isOfKeys && !readonly) || request.kind === "revoke";
    const isUnchecked = isWrite && quota.alarm && quirks.alarmSkipsPermissions;
    const denied = isUnchecked ? undefined : checkRequest(this.#options, request, info);
    if (denied) return denied;
    // They check the revision again (doSerialize).
    const isStale = readonly && info.revision !== 0 && info.revision < auth.revision;
    return isStale ? OLD_REVISION : undefined;
  }

  /** The member was restarted: simple tokens are in its memory only (measured, 3.4.23 and 3.6.16). */
  restarted(): void {
    this.#tokens.clear();
    this.#tokens.enabled();
  }

  /** Rejects at once, or answers when the password is compared. */
  authenticate(
    { username, password }: { readonly username: string; readonly password: string },
    reply: (reply: UnaryReply) => void,
  ): void {
    const { auth, scheduler } = this.#options;
    if (!auth.enabled) return reply(auth.checkPassword(username, password)!);
    const { revision } = auth;
    const refusal = auth.checkPassword(username, password);
    scheduler.after(auth.passwordMs, () => {
      // An edit meanwhile: etcd compares again (Authenticate in etcdserver/v3_server.go).
      if (auth.revision !== revision) this.authenticate({ username, password }, reply);
      else reply(refusal ?? { answer: { token: auth.issue(username) } });
    });
  }

  /** The rejection of a renewal, which ends its stream. */
  checkRenewal(token: string | undefined, leaseId: bigint): Refusal | undefined {
    const { auth, quirks } = this.#options;
    if (!auth.enabled || !quirks.keepaliveChecksToken) return undefined;
    const info = this.infoOf(token);
    if (isRefusal(info)) return info;
    if (info.revision === 0) return USER_EMPTY;
    return writeRights(this.#options, leaseId, info);
  }

  /** Why a watch is not created: a text as Go's gRPC makes it of an error. */
  checkWatch(token: string | undefined, { key, end }: WatchRequest): string | undefined {
    const { auth, quirks } = this.#options;
    if (!this.#checksTokens) return undefined;
    const { key: first, end: limit } = intervalOf(key.length === 0 ? "\0" : key, end);
    const isOfKey = limit === "" && quirks.openWatchesCheckedAsKey;
    const info = this.infoOf(token);
    const range = { key: first, end: isOfKey ? undefined : limit };
    const refusal = isRefusal(info) ? info : auth.check(info, "read", range);
    if (!refusal) return undefined;
    return `rpc error: code = ${CODE_NAMES[refusal.code]} desc = ${refusal.refused}`;
  }

  /** AuthInfoFromCtx. Each call extends the life of a simple token. */
  infoOf(token: string | undefined): Refusal | AuthInfo {
    const { auth } = this.#options;
    if (!this.#checksTokens || token === undefined) return NO_USER;
    return this.#tokens.info(token, auth.revision) ?? INVALID_TOKEN;
  }

  /** Whether the token is not checked. */
  #ignoresTokens(request: MemberRequest): boolean {
    const { auth, quirks } = this.#options;
    if (request.kind === "administer")
      return request.needs === "nothing" || (request.needs === "user" && !quirks.leasesNeedUser);
    if (request.kind !== "timeToLive") return false;
    if (!auth.enabled || quirks.everybodyReadsLeases) return true;
    return request.withoutKeys && !quirks.leasesNeedUser;
  }

  #checkUser(request: MemberRequest, { username, revision }: AuthInfo): Refusal | undefined {
    const { quirks, auth } = this.#options;
    const { kind } = request;
    if (!auth.enabled) return undefined;
    const isOfLease = kind === "grant" || kind === "revoke" || kind === "timeToLive";
    const needsUser = isOfLease || (kind === "administer" && request.needs === "user");
    if (needsUser && quirks.leasesNeedUser && revision === 0) return USER_EMPTY;
    const needsRoot =
      kind === "administer"
        ? request.needs === "root" && !request.isOwn(username)
        : kind === "compact" && quirks.compactionNeedsRoot;
    if (!needsRoot || auth.users.isRoot(username)) return undefined;
    if (revision === 0) return USER_EMPTY;
    return auth.users.has(username) ? PERMISSION_DENIED : USER_NOT_FOUND;
  }
}

const CODE_NAMES: Readonly<Record<number, string>> = {
  3: "InvalidArgument",
  7: "PermissionDenied",
  16: "Unauthenticated",
};

/** Which permissions a request needs (etcdserver/apply_auth.go, etcdserver/v3_server.go). */

interface Context {
  readonly auth: AuthStore;
  readonly leases: Leases;
  readonly quirks: AuthQuirks;
}

export function checkRequest(context: Context, request: MemberRequest, info: AuthInfo): Refusal | undefined {
  switch (request.kind) {
    case "kv":
      return checkRights(context, request.request, info);
    case "revoke":
      return revokeRights(context, request.leaseId, info);
    case "timeToLive":
      return request.withoutKeys ? undefined : readRights(context, request.leaseId, info);
    case "grant":
    case "compact":
    case "authenticate":
    case "administer":
      return undefined;
  }
}

/** Those of both branches, whichever is taken. */
function checkRights(context: Context, request: KvRequest, info: AuthInfo): Refusal | undefined {
  const { auth, quirks } = context;
  if (request.kind === "txn") {
    for (const { key, end } of request.compare) {
      const refusal = auth.check(info, "read", intervalOf(key, end));
      if (refusal) return refusal;
    }
    for (const each of branches(request)) {
      if (each.kind === "txn" && quirks.nestedTxnsUnchecked) continue;
      const refusal = checkRights(context, each, info);
      if (refusal) return refusal;
    }
    return undefined;
  }
  const range = intervalOf(request.key, request.kind === "put" ? undefined : request.end);
  const isRead = request.kind === "range";
  const denied = isRead ? undefined : auth.check(info, "write", range);
  const refusal = denied ?? (isRead || request.previous ? auth.check(info, "read", range) : undefined);
  if (refusal || request.kind !== "put" || quirks.leasesOfPutsUnchecked) return refusal;
  return writeRights(context, request.leaseId, info);
}

/** The right to write each key of a lease. */
export function writeRights(context: Context, leaseId: bigint, info: AuthInfo): Refusal | undefined {
  if (context.auth.users.isRoot(info.username)) return undefined;
  return everyKey(context, leaseId, (key) => context.auth.check(info, "write", key));
}

function revokeRights(context: Context, leaseId: bigint, info: AuthInfo): Refusal | undefined {
  if (context.quirks.rootRevokesLeases) return writeRights(context, leaseId, info);
  return everyKey(context, leaseId, (key) => context.auth.check(info, "write", key));
}

/** The right to read each key of a lease. */
function readRights(context: Context, leaseId: bigint, info: AuthInfo): Refusal | undefined {
  const { auth, quirks } = context;
  if (!auth.enabled || quirks.everybodyReadsLeases) return undefined;
  if (info.revision === 0) return USER_EMPTY;
  if (quirks.rootReadsLeases && auth.users.isRoot(info.username)) return undefined;
  return everyKey(context, leaseId, (key) => auth.check(info, "read", key));
}

function everyKey(
  { leases }: Context,
  leaseId: bigint,
  check: (key: Interval) => Refusal | undefined,
): Refusal | undefined {
  for (const key of leases.keysOf(leaseId)) {
    const refusal = check({ key, end: undefined });
    if (refusal) return refusal;
  }
  return undefined;
}

/**
 * The quota of the backend. Its size is not simulated: a test sets when it is exceeded. etcd checks it twice: the member that
 * gets a request (api/v3rpc/quota.go), and the application of the request (etcdserver/apply). Either raises the alarm, which stays
 * until it is disarmed.
 */
export class Quota {
  readonly #quirks: Pick<AuthQuirks, "nestedPutsAreFree">;
  /** The alarm NOSPACE is on. */
  alarm = false;
  #full = false;
  #crossing = false;

  constructor(quirks: Pick<AuthQuirks, "nestedPutsAreFree">) {
    this.#quirks = quirks;
  }

  /** Neither check has an effect. */
  get idle(): boolean {
    return !this.alarm && !this.#full && !this.#crossing;
  }

  /** The backend has reached its quota: the next write raises the alarm. */
  fill(): void {
    this.#full = true;
    this.#crossing = false;
  }

  /** The next write crosses the quota while it is applied: it is executed, and still rejected. */
  cross(): void {
    this.#crossing = true;
  }

  /** As an administrator who has made space, and disarms the alarm. */
  clear(): void {
    this.alarm = this.#full = this.#crossing = false;
  }

  /** Whether the member that gets the request rejects it. */
  rejects(request: MemberRequest): boolean {
    if (!this.#full || !this.#isCostly(request)) return false;
    this.alarm = true;
    return true;
  }

  /** Whether the alarm rejects the request when it is applied (applierV3Capped). */
  isCapped(request: MemberRequest): boolean {
    return this.alarm && this.#isCostly(request);
  }

  /** Whether a request that was executed is rejected all the same (quotaApplierV3). */
  crosses(request: MemberRequest): boolean {
    if (!this.#crossing || !this.#isCostly(request)) return false;
    this.fill();
    this.alarm = true;
    return true;
  }

  /** Puts, also those of the branch that is not taken, and grants (storage/quota.go). */
  #isCostly(request: MemberRequest): boolean {
    if (request.kind !== "kv") return request.kind === "grant";
    return puts(request.request, !this.#quirks.nestedPutsAreFree);
  }
}
