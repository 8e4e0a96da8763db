import { Rejected } from "../rejected.js";
import type { SharedPlace } from "./places.js";
import type { SharedRequest } from "./requests.js";

type Write = Exclude<SharedRequest, { is: "other" | "unknown" }>;

const isWrite = (request: SharedRequest): request is Write =>
  request.is !== "other" && request.is !== "unknown";

const idOf = (write: Write): string => {
  const { is, key, value } = write;
  return `${is} ${key} ${"created" in write ? write.created : 0} ${value}`;
};

/** The requests that may have changed etcd, or may yet. */
export class Writes {
  /** How many attempts of each are in transit or in doubt. */
  readonly #open = new Map<string, { readonly write: Write; attempts: number }>();

  sent(request: SharedRequest): void {
    if (!isWrite(request)) return;
    const open = this.#open.get(idOf(request)) ?? { write: request, attempts: 0 };
    open.attempts++;
    this.#open.set(idOf(request), open);
  }

  /** The attempt was answered, or was certainly not executed. One in doubt may still be executed. */
  over(request: SharedRequest): void {
    if (!isWrite(request)) return;
    const open = this.#open.get(idOf(request));
    if (open && --open.attempts === 0) this.#open.delete(idOf(request));
  }

  mayExist(key: string, value: string): boolean {
    return this.#some((write) => isJoin(write) && write.key === key && write.value === value);
  }

  put(what: string, now: { readonly key: string; readonly value: string; readonly created: number }): void {
    const { key, value, created } = now;
    const found = this.#some((write) => {
      if (write.key !== key || write.value !== value) return false;
      return created > 0 ? write.is === "announcement" && write.created === created : isJoin(write);
    });
    if (!found) throw new Rejected(`${what}: no request may put it now`, []);
  }

  deleted(what: string, place: SharedPlace): void {
    const { key, created, value } = place;
    const found = this.#some(
      (write) =>
        write.is === "leave" &&
        write.key === key &&
        (write.created > 0 ? write.created === created : write.value === value),
    );
    if (!found) throw new Rejected(`${what}: no request may delete the place created at ${created}`, []);
  }

  #some(which: (write: Write) => boolean): boolean {
    for (const { write } of this.#open.values()) if (which(write)) return true;
    return false;
  }
}

const isJoin = ({ is }: Write): boolean => is === "join" || is === "try";
