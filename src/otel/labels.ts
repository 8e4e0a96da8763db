/** Stands for every lock and election without a label, and for the labels beyond the limit. */
export const OTHER = "other";

/** Limits how many values the attribute `leasehold.label` has: a monitoring system keeps one time series for each. */
export class Labels {
  readonly #seen = new Set<string>();

  constructor(private readonly most: number) {}

  of(label: string | undefined): string {
    if (label === undefined || this.#seen.has(label)) return label ?? OTHER;
    if (this.#seen.size >= this.most) return OTHER;
    this.#seen.add(label);
    return label;
  }
}
