import type { Key } from "../../../lab/model/world.js";
import { Rejected } from "../rejected.js";
import type { Request } from "../requests.js";

export type RewriteRequest = Extract<Request, { is: "proclaim" | "announcement" }>;

export const isRewrite = (request: Request): request is RewriteRequest =>
  request.is === "proclaim" || request.is === "announcement";

/** What the answer to such a put shows: the key as it is now, if it is there. */
export interface Rewritten {
  readonly done: boolean;
  readonly revision: number;
  readonly own: { readonly created: number; readonly modified: number } | undefined;
}

const placeOf = ({ key, created }: Pick<RewriteRequest, "key" | "created">): string => `${key} ${created}`;

/** The puts of keys that exist: a leader's next value, and the announcement of a grant. */
export class Rewrites {
  /** By place: the last revision at which its client knows the key to be put. */
  readonly #known = new Map<string, number>();
  /** By key: the revision at which it was put last. */
  readonly #modified = new Map<string, number>();
  /** Sent, and not known to be refused. */
  readonly #sent = new Set<RewriteRequest>();

  sent(what: string, request: RewriteRequest, sameValue: boolean): void {
    const { is, created, modified } = request;
    const known = this.#known.get(placeOf(request)) ?? created;
    if (is === "proclaim" && modified !== known)
      throw new Rejected(`${what}, guarded by revision ${modified}: its client knows ${known}`, []);
    if (is === "announcement" && !sameValue) throw new Rejected(`${what}: it changes the value`, []);
    this.#sent.add(request);
  }

  answered(request: RewriteRequest, { done, revision, own }: Rewritten): void {
    const known = done ? revision : own?.created === request.created ? own.modified : undefined;
    if (known !== undefined) this.#known.set(placeOf(request), known);
    this.#sent.delete(request);
  }

  /** One in doubt may still be executed. */
  failed(request: RewriteRequest, inDoubt: boolean): void {
    if (!inDoubt) this.#sent.delete(request);
  }

  /** etcd has put the key that exists. */
  put(what: string, old: Key, now: { readonly value: string; readonly revision: number }): void {
    const { key, created } = old;
    const modified = this.#modified.get(key) ?? created;
    const found = [...this.#sent].find(
      (each) =>
        each.key === key &&
        each.created === created &&
        each.value === now.value &&
        (each.is === "announcement" || each.modified === modified),
    );
    if (!found) throw new Rejected(`${what}: the key is there, and no request may write it now`, []);
    this.#modified.set(key, now.revision);
  }

  /** A key that is put anew has not been written since. */
  created({ key }: Key): void {
    this.#modified.delete(key);
  }
}
