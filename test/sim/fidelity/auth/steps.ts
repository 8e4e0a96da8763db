import type { Range, Txn } from "../../../../src/etcd/port.js";

/** A random program of several clients, each with a token of its own. */

/** What one client asks. */
export type Ask =
  | { readonly kind: "txns"; readonly txns: readonly Txn[] }
  | { readonly kind: "range"; readonly range: Range }
  | { readonly kind: "grant"; readonly leaseId: bigint }
  | { readonly kind: "revoke"; readonly leaseId: bigint }
  | { readonly kind: "renew"; readonly leaseId: bigint }
  | { readonly kind: "timeToLive"; readonly leaseId: bigint; readonly withoutKeys: boolean }
  | { readonly kind: "watch"; readonly key: string; readonly end?: string }
  | { readonly kind: "compact"; readonly revision: bigint };

/** What an administrator changes. An end of "\0" means everything from the key on. */
export type Edit =
  | { readonly edit: "enable" | "disable" }
  | { readonly edit: "add user" | "change password"; readonly user: string; readonly password: string }
  | { readonly edit: "delete user"; readonly user: string }
  | { readonly edit: "grant role" | "revoke role"; readonly user: string; readonly role: string }
  | { readonly edit: "add role" | "delete role"; readonly role: string }
  | {
      readonly edit: "grant permission";
      readonly role: string;
      readonly type: "read" | "write" | "readwrite";
      readonly key: string;
      readonly end: string;
    }
  | { readonly edit: "revoke permission"; readonly role: string; readonly key: string; readonly end: string }
  | { readonly edit: "alarm"; readonly on: boolean };

export type Step =
  | { readonly kind: "ask"; readonly client: number; readonly ask: Ask }
  | { readonly kind: "login"; readonly client: number; readonly user: string; readonly password: string }
  /** From now on without a token, or with one that was never issued. */
  | { readonly kind: "logout" | "forge"; readonly client: number }
  /** The next renewal and the next watch open streams with the present token. */
  | { readonly kind: "reopen"; readonly client: number }
  | { readonly kind: "edit"; readonly edit: Edit }
  | { readonly kind: "elapse"; readonly ms: number };

export type Program = readonly Step[];

export const textOf = (step: Step): string =>
  JSON.stringify(step, (_, value: unknown) => (typeof value === "bigint" ? `${value}n` : value));
