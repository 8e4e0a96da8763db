/** A step of a caller with its hold. */
export interface OnHold {
  readonly p: string;
  /** Of the call that acquired it. */
  readonly id: number;
  readonly lock: string;
  readonly token?: bigint;
}

const idOf = ({ p, id, lock }: OnHold): string => `${p} ${id} ${lock}`;

/** By process, call and name: the key that the call was granted. */
export class GrantedKeys {
  readonly #keys = new Map<string, string>();

  granted(hold: OnHold, key: string): void {
    this.#keys.set(idOf(hold), key);
  }

  of(hold: OnHold): string | undefined {
    return this.#keys.get(idOf(hold));
  }
}
