import type { Interval } from "../bytes.js";
import type { Refusal } from "../types.js";
import { type Access, type Permission, Permissions } from "./permissions.js";
import {
  PERMISSION_NOT_GRANTED,
  ROLE_EXISTS,
  ROLE_NOT_FOUND,
  ROLE_NOT_GRANTED,
  USER_EXISTS,
  USER_NOT_FOUND,
} from "./refusals.js";

export const ROOT = "root";

interface User {
  password: string;
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
    return this.#users.get(name)?.password === password;
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

  addUser(name: string, password: string): Refusal | undefined {
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
