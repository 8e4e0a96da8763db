import type { Refusal } from "../types.js";

/** etcd's rejections for authentication and quota: the texts and codes of api/v3rpc/rpctypes/error.go. */

const INVALID_ARGUMENT = 3;
const PERMISSION = 7;
const RESOURCE_EXHAUSTED = 8;
const FAILED_PRECONDITION = 9;
const UNAUTHENTICATED = 16;

const refusal = (code: number, text: string): Refusal => ({ refused: `etcdserver: ${text}`, code });

export const NO_SPACE = refusal(RESOURCE_EXHAUSTED, "mvcc: database space exceeded");

export const INVALID_TOKEN = refusal(UNAUTHENTICATED, "invalid auth token");
export const OLD_REVISION = refusal(INVALID_ARGUMENT, "revision of auth store is old");
export const USER_EMPTY = refusal(INVALID_ARGUMENT, "user name is empty");
export const PERMISSION_DENIED = refusal(PERMISSION, "permission denied");
export const AUTH_DISABLED = refusal(FAILED_PRECONDITION, "authentication is not enabled");
export const WRONG_PASSWORD = refusal(INVALID_ARGUMENT, "authentication failed, invalid user ID or password");

export const USER_NOT_FOUND = refusal(FAILED_PRECONDITION, "user name not found");
export const USER_EXISTS = refusal(FAILED_PRECONDITION, "user name already exists");
export const ROLE_NOT_FOUND = refusal(FAILED_PRECONDITION, "role name not found");
export const ROLE_EXISTS = refusal(FAILED_PRECONDITION, "role name already exists");
export const ROLE_NOT_GRANTED = refusal(FAILED_PRECONDITION, "role is not granted to the user");
export const PERMISSION_NOT_GRANTED = refusal(FAILED_PRECONDITION, "permission is not granted to the role");
export const NO_ROOT_USER = refusal(FAILED_PRECONDITION, "root user does not exist");
export const NO_ROOT_ROLE = refusal(FAILED_PRECONDITION, "root user does not have root role");
export const INVALID_MANAGEMENT = refusal(INVALID_ARGUMENT, "invalid auth management");
