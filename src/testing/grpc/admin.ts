// The services Auth, Cluster and Maintenance.
import { crc32 } from "node:zlib";
import {
  BAD_TRANSFEREE,
  COMPACTED,
  FUTURE_REVISION,
  INVALID_MANAGEMENT,
  isRefusal,
  NO_LEADER,
  NOT_LEADER,
  PERMISSION_DENIED,
  type Refusal,
  ROLE_EMPTY,
  ROLE_NOT_FOUND,
  USER_EMPTY,
  USER_NOT_FOUND,
} from "../memory/protocol.js";
import { bytesOfValue, type Interval, intervalOf } from "../memory/store.js";
import type { AuthStore, Permission } from "../memory/users.js";
import { type Done, made, type ServedMember } from "./member.js";
import * as messages from "./messages.js";
import { type Method, unary } from "./server.js";

export function authOf(member: ServedMember): Record<string, Method> {
  const edit = <Request extends object>(
    request: Parameters<typeof unary<Request, object>>[0],
    run: (auth: AuthStore, asked: Request) => Refusal | undefined | void,
  ): Method =>
    unary(request, messages.HEADER_ONLY, (asked, done, metadata) =>
      member.administer<object>({ run: (auth) => run(auth, asked) ?? undefined }, metadata, done),
    );
  const { etcd } = member;
  const { auth } = etcd;
  const methods = {
    AuthEnable: edit(messages.EMPTY, () => auth.enable()),
    AuthDisable: edit(messages.EMPTY, () => auth.disable()),
    AuthStatus: unary(messages.EMPTY, messages.AUTH_STATUS_RESPONSE, (_, done, metadata) =>
      member.administer(
        {
          ...(etcd.version === "3.7" && { needs: "nothing" as const }),
          run: () => ({ enabled: auth.enabled, revision: auth.revision }),
        },
        metadata,
        done,
      ),
    ),
    Authenticate: unary(
      messages.USER_REQUEST,
      messages.TOKEN_RESPONSE,
      ({ name, password }, done, metadata) =>
        member.ask<{ token: string }>(
          { kind: "authenticate", username: name, password },
          { ...metadata, token: undefined },
          made(done, ({ token }) => ({ header: member.header, token })),
        ),
    ),
    UserAdd: edit(messages.USER_REQUEST, (_, { name, password, options }) => {
      if (name === "") return USER_EMPTY;
      return auth.edit((users) => users.addUser(name, options?.noPassword ? undefined : password));
    }),
    UserDelete: edit(messages.NAME_REQUEST, (_, { name }) => auth.deleteUser(name)),
    UserChangePassword: edit(messages.USER_REQUEST, (_, { name, password }) =>
      auth.changePassword(name, password),
    ),
    UserGrantRole: edit(messages.USER_ROLE_REQUEST, (_, { name, role }) =>
      auth.edit((users) => users.grantRole(name, role)),
    ),
    UserRevokeRole: edit(messages.USER_ROLE_REQUEST, (_, { name, role }) => auth.revokeRole(name, role)),
    UserGet: unary(messages.NAME_REQUEST, messages.NAMES_RESPONSE, ({ name }, done, metadata) =>
      member.administer(
        {
          isOwn: (username) => username === name,
          run: ({ users }) => {
            const names = users.rolesOf(name);
            return names ? { names } : USER_NOT_FOUND;
          },
        },
        metadata,
        done,
      ),
    ),
    UserList: unary(messages.EMPTY, messages.NAMES_RESPONSE, (_, done, metadata) =>
      member.administer({ run: ({ users }) => ({ names: users.names }) }, metadata, done),
    ),
    RoleAdd: edit(messages.NAME_REQUEST, (_, { name }) => {
      return name === "" ? ROLE_EMPTY : auth.edit((users) => users.addRole(name));
    }),
    RoleDelete: edit(messages.NAME_REQUEST, (_, { name }) => auth.deleteRole(name)),
    RoleGet: unary(messages.NAME_REQUEST, messages.PERMISSIONS_RESPONSE, ({ name }, done, metadata) =>
      member.administer(
        {
          isOwn: (username) => auth.users.rolesOf(username)?.includes(name) ?? false,
          run: ({ users }) => {
            const permissions = users.permissionsOf(name)?.map(permissionMessage);
            return permissions ? { permissions } : ROLE_NOT_FOUND;
          },
        },
        metadata,
        done,
      ),
    ),
    RoleList: unary(messages.EMPTY, messages.NAMES_RESPONSE, (_, done, metadata) =>
      member.administer({ run: ({ users }) => ({ names: users.roles }) }, metadata, done),
    ),
    RoleGrantPermission: edit(messages.GRANT_PERMISSION_REQUEST, (_, { name, permission }) => {
      if (permission === undefined) return NO_PERMISSION;
      const { type, key, end } = permission;
      if (etcd.version !== "3.4" && !isValidRange(key, end)) return INVALID_MANAGEMENT;
      const granted = { type: PERMISSIONS[type] ?? "read", range: intervalOf(key, end) };
      return auth.edit((users) => users.grantPermission(name, granted));
    }),
    RoleRevokePermission: edit(messages.REVOKE_PERMISSION_REQUEST, (_, { name, key, end }) =>
      auth.edit((users) => users.revokePermission(name, intervalOf(key, end))),
    ),
  };
  const { AuthStatus, ...others } = methods;
  return etcd.version === "3.4" ? others : { ...others, AuthStatus };
}

const NO_PERMISSION: Refusal = { refused: "etcdserver: permission not given", code: 3 };
/** isValidPermissionRange in auth/store.go: an end of "\\0" is none. */
const isValidRange = (key: Buffer, end: Buffer): boolean =>
  key.length > 0 && (end.length === 0 || (end.length === 1 && end[0] === 0) || key.compare(end) < 0);

const PERMISSIONS = ["read", "write", "readwrite"] as const;

/** An end of "" is everything from the key on, for which etcd has another word. */
const endOf = ({ end }: Interval): string => (end === "" ? "\0" : (end ?? ""));

const permissionMessage = ({ type, range }: Permission): messages.PermissionMessage => ({
  type: PERMISSIONS.indexOf(type),
  key: Buffer.from(range.key, "latin1"),
  end: Buffer.from(endOf(range), "latin1"),
});

export function clusterOf(member: ServedMember): Record<string, Method> {
  const members = (): messages.MemberMessage[] =>
    member.cluster.hosts.map((host, index) => ({
      memberId: member.idOf(index),
      name: member.cluster.names[index]!,
      // Where nobody listens: the members need no network.
      peerUrls: [`http://127.0.0.1:${PEER_PORT + index}`],
      clientUrls: [`http://${host}`],
    }));
  return {
    // The only header without a revision.
    MemberList: unary(messages.EMPTY, messages.MEMBERS_RESPONSE, (_, done, metadata) =>
      member.administer(
        { needs: "user", run: () => ({ members: members() }) },
        metadata,
        made(done, (answer) => ({ ...answer, header: { ...answer.header, revision: 0n } })),
      ),
    ),
  };
}

const PEER_PORT = 2380;

/** The patch releases whose answers are known. */
const VERSIONS = { "3.4": "3.4.23", "3.5": "3.5.16", "3.6": "3.6.16", "3.7": "3.7.3" } as const;

export function maintenanceOf(member: ServedMember): Record<string, Method> {
  const { etcd, index } = member;
  const { store, quota } = etcd;
  const isOld = etcd.version === "3.4" || etcd.version === "3.5";
  const alarms = (): { memberId: bigint; alarm: number }[] =>
    quota.alarm ? [{ memberId: member.idOf(index), alarm: NO_SPACE_ALARM }] : [];
  const status = (): Omit<messages.StatusResponse, "header"> => {
    const leader = etcd.leaderOf(index);
    const applied = etcd.cluster?.members[index]!.applying.applied ?? Number(store.revision);
    return {
      version: VERSIONS[etcd.version],
      dbSize: DB_BYTES,
      dbSizeInUse: DB_BYTES,
      raftIndex: applied,
      appliedIndex: applied,
      leader: leader === undefined ? 0n : member.idOf(leader),
      raftTerm: member.header.raftTerm ?? 0n,
      errors: [
        ...(leader === undefined ? [NO_LEADER.refused] : []),
        ...alarms().map(({ memberId }) => `memberID:${memberId} alarm:NOSPACE `),
      ],
      ...(!isOld && { storageVersion: `${etcd.version}.0`, quota: QUOTA_BYTES, downgrade: {} }),
    };
  };
  const hash = (revision: bigint): Refusal | Omit<messages.HashResponse, "header"> => {
    const until = revision === 0n ? store.revision : revision;
    if (until > store.revision) return FUTURE_REVISION;
    if (until < store.compacted) return COMPACTED;
    const compactRevision = store.compacted;
    return { hash: hashUntil(member, until), compactRevision, ...(!isOld && { hashRevision: until }) };
  };
  /** 3.4 and 3.5 give the refusals of the package auth as they are. */
  const asOld = <Answer extends object>(done: Done<Answer>): Done<Answer> => {
    const old = (answer: Answer | Refusal): Answer | Refusal =>
      isRefusal(answer) && (answer === PERMISSION_DENIED || answer === USER_EMPTY)
        ? { refused: answer.refused.replace("etcdserver", "auth"), code: UNKNOWN }
        : answer;
    return (answer) => done(isOld ? old(answer) : answer);
  };
  return {
    Alarm: unary(messages.ALARM_REQUEST, messages.ALARMS_RESPONSE, ({ action, alarm }, done, metadata) => {
      const run = (): Refusal | { alarms: ReturnType<typeof alarms> } => {
        if (action === ACTIVATE && alarm !== NO_SPACE_ALARM) return NO_SUCH_ALARM;
        if (action === ACTIVATE) quota.alarm = true;
        const found = alarms();
        if (action === DEACTIVATE) quota.clear();
        return { alarms: found };
      };
      member.administer({ needs: "user", run }, metadata, done);
    }),
    Status: unary(messages.EMPTY, messages.STATUS_RESPONSE, (_, done, metadata) =>
      member.administer({ needs: "user", isLocal: true, run: status }, metadata, done),
    ),
    Hash: unary(messages.EMPTY, messages.HASH_RESPONSE, (_, done, metadata) =>
      member.administer(
        { isLocal: true, run: () => ({ hash: hashUntil(member, store.revision), compactRevision: 0n }) },
        metadata,
        asOld(done),
      ),
    ),
    HashKV: unary(messages.HASH_REQUEST, messages.HASH_RESPONSE, ({ revision }, done, metadata) =>
      member.administer({ isLocal: true, run: () => hash(revision) }, metadata, asOld(done)),
    ),
    Defragment: unary(messages.EMPTY, messages.HEADER_ONLY, (_, done, metadata) =>
      member.administer<object>({ isLocal: true, run: () => ({}) }, metadata, asOld(done)),
    ),
    MoveLeader: unary(messages.MOVE_LEADER_REQUEST, messages.HEADER_ONLY, ({ memberId }, done) => {
      if (etcd.leaderOf(index) !== index) return done(NOT_LEADER);
      const target = member.cluster.hosts.findIndex((_, each) => member.idOf(each) === memberId);
      if (target === -1) return done(BAD_TRANSFEREE);
      etcd.cluster?.moveLeader(target);
      done({ header: member.header });
    }),
  };
}

const UNKNOWN = 2;
/** The default of the quota, and the size of an etcd that has nothing. */
const [QUOTA_BYTES, DB_BYTES] = [2 * 1024 ** 3, 20_480];
const NO_SPACE_ALARM = 1;
const [ACTIVATE, DEACTIVATE] = [1, 2];
const NO_SUCH_ALARM: Refusal = { refused: "this etcd has only the alarm NOSPACE", code: 12 };

/** Equal on all members, and another one than that of a real etcd with the same keys: it hashes what is on its disk. */
function hashUntil({ etcd: { store } }: ServedMember, until: bigint): number {
  let hash = 0;
  for (const { revision, events } of store.since(store.compacted + 1n)) {
    if (revision > until) break;
    for (const { kind, kv } of events)
      hash = crc32(Buffer.concat([Buffer.from(`${revision} ${kind} `), kv.key, bytesOfValue(kv)]), hash);
  }
  return hash;
}
