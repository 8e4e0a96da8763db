import type { Change } from "../../../../src/testing/memory/store.js";
import { Rejected } from "../rejected.js";
import type { JoinRequest } from "../requests.js";

/** Keys that `lockAll()` puts in one transaction: all of them, or none. */
type Joint = readonly JoinRequest[];

const idOf = ({ key, value }: { readonly key: string; readonly value: string }): string => `${key} ${value}`;

/** The transactions of several names. Each is a step in the queue of each of its names, with one outcome. */
export class Joints {
  /** By key and value of each part. */
  readonly #of = new Map<string, Joint>();

  /** By key and create revision of each part. */
  readonly #places = new Map<string, Joint>();

  sent(what: string, parts: Joint): void {
    for (const part of parts) {
      const known = this.#of.get(idOf(part)) ?? parts;
      const same =
        known.length === parts.length && known.every((other, i) => idOf(other) === idOf(parts[i]!));
      if (!same)
        throw new Rejected(`${what}: it belongs to a joint transaction of ${known.length} names`, []);
      if (parts.length > 1) this.#of.set(idOf(part), known);
    }
  }

  /** The places of several names that were created together; undefined if the place is one of its own. */
  at({ key, revision }: { readonly key: string; readonly revision: number }): Joint | undefined {
    return this.#places.get(`${key} ${revision}`);
  }

  /** What etcd puts in one revision. */
  put({ revision, events }: Change): void {
    const puts = events.flatMap(({ kind, kv }) =>
      kind === "PUT" ? [{ key: kv.key.toString(), value: kv.value }] : [],
    );
    const ids = new Set(puts.map(idOf));
    for (const put of puts) {
      const joint = this.#of.get(idOf(put));
      if (joint) this.#places.set(`${put.key} ${revision}`, joint);
      const missing = joint?.find((part) => !ids.has(idOf(part)));
      if (missing)
        throw new Rejected(
          `etcd puts ${put.key} at revision ${revision} without ${missing.key}: ${WHOLE}`,
          [],
        );
    }
  }
}

const WHOLE = "one transaction puts both, or none";
