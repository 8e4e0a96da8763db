/** A hold's access to the shared resource. */
export interface Visitor {
  readonly name: string;
  readonly token?: bigint;
}
export interface Visit {
  readonly accepted: boolean;
  /** The value of the counter before. */
  readonly before: number;
}

/**
 * The resource that the locks protect: a counter per name. It refuses a fencing token that is older than one it has
 * seen; it cannot distinguish clients without a token.
 */
export class Store {
  readonly #counters = new Map<string, number>();
  readonly #highest = new Map<string, bigint>();

  read(visitor: Visitor): Visit {
    return { accepted: this.#admits(visitor), before: this.#counter(visitor.name) };
  }

  write(visitor: Visitor, seq: number): Visit {
    const before = this.#counter(visitor.name);
    const accepted = this.#admits(visitor);
    if (accepted) this.#counters.set(visitor.name, seq);
    return { accepted, before };
  }

  #counter(name: string): number {
    return this.#counters.get(name) ?? 0;
  }

  #admits({ name, token }: Visitor): boolean {
    if (token === undefined) return true;
    if (token < (this.#highest.get(name) ?? 0n)) return false;
    this.#highest.set(name, token);
    return true;
  }
}
