import type { WatchRequest } from "../../../../src/etcd/port.js";
import type { Scheduler } from "../../kernel/kernel.js";
import { intervalOf } from "../bytes.js";
import type { Leases } from "../leases.js";
import { EMPTY_KEY, isRefusal } from "../refusals.js";
import { checkTxns } from "../txn-limits.js";
import type { Refusal, UnaryReply, UnaryRequest } from "../types.js";
import type { AuthStore } from "./auth-store.js";
import { checkRequest, isReadonlyRequest, writeRights } from "./checks.js";
import type { AuthQuirks } from "./quirks.js";
import type { Quota } from "./quota.js";
import {
  INVALID_TOKEN,
  NO_SPACE,
  OLD_REVISION,
  PERMISSION_DENIED,
  USER_EMPTY,
  USER_NOT_FOUND,
} from "./refusals.js";
import { type AuthInfo, NO_USER, type Tokens } from "./tokens.js";

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
  admit(request: UnaryRequest): Refusal | AuthInfo | undefined {
    if (this.#options.quota.rejects(request)) return NO_SPACE;
    const malformed = checkForm(request);
    if (malformed) return malformed;
    if (this.#idle) return undefined;
    if (this.#ignoresTokens(request)) return NO_USER;
    const info = this.infoOf(request.token);
    return isRefusal(info) ? info : (this.#checkUser(request, info) ?? info);
  }

  /** Checks and executes a request that is applied. */
  apply(request: UnaryRequest, info: AuthInfo, run: () => object): object {
    const refusal = this.decide(request, info);
    if (refusal) return refusal;
    const answer = run();
    return !isRefusal(answer) && this.#options.quota.crosses(request) ? NO_SPACE : answer;
  }

  /**
   * What is checked when a request is applied: the alarm, then permissions. Users and roles are not part of the log here: a
   * request that goes through raft is decided once, when it is committed (`Cluster.committed`), and each member applies that.
   */
  decide(request: UnaryRequest, info: AuthInfo): Refusal | undefined {
    const { quota, auth, quirks } = this.#options;
    const readonly = isReadonlyRequest(request);
    if (quota.isCapped(request)) return NO_SPACE;
    const isWrite = (request.kind === "txns" && !readonly) || request.kind === "revoke";
    const isUnchecked = isWrite && quota.alarm && quirks.alarmSkipsPermissions;
    const denied = isUnchecked ? undefined : checkRequest(this.#options, request, info);
    if (denied) return denied;
    // The reads that do not go through raft check the revision again (doSerialize).
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
  #ignoresTokens(request: UnaryRequest): boolean {
    if (request.kind !== "timeToLive") return false;
    const { auth, quirks } = this.#options;
    if (!auth.enabled || quirks.everybodyReadsLeases) return true;
    return request.withoutKeys && !quirks.leasesNeedUser;
  }

  #checkUser({ kind }: UnaryRequest, { username, revision }: AuthInfo): Refusal | undefined {
    const { quirks, auth } = this.#options;
    if (!auth.enabled) return undefined;
    const isOfLease = kind === "grant" || kind === "revoke" || kind === "timeToLive";
    if (isOfLease && quirks.leasesNeedUser && revision === 0) return USER_EMPTY;
    if (kind !== "compact" || !quirks.compactionNeedsRoot || auth.users.isRoot(username)) return undefined;
    if (revision === 0) return USER_EMPTY;
    return auth.users.has(username) ? PERMISSION_DENIED : USER_NOT_FOUND;
  }
}

const CODE_NAMES: Readonly<Record<number, string>> = {
  3: "InvalidArgument",
  7: "PermissionDenied",
  16: "Unauthenticated",
};

/** What etcd rejects before it checks the token (api/v3rpc/key.go). */
function checkForm(request: UnaryRequest): Refusal | undefined {
  if (request.kind === "txns") return checkTxns(request.txns);
  return request.kind === "range" && request.range.key.length === 0 ? EMPTY_KEY : undefined;
}
