import type { CallOptions } from "../../../../src/etcd/port.js";
import type { Subject } from "../subjects/subject.js";

export const OPTIONS: CallOptions = { timeoutMs: 20_000 };
/** etcd serves watches from the past every 100 ms. */
const LIMIT_MS = 5_000;

/** Waits for a subject's answers, while its time passes. */
export class Waits {
  #awaited: { readonly condition: () => boolean; readonly resolve: () => void } | undefined;

  constructor(
    private readonly subject: Subject,
    /** Called when a condition is not met in time. */
    private readonly late: (text: string) => void,
  ) {}

  async call<T>(answer: Promise<T>): Promise<T> {
    await this.subject.wait(answer, OPTIONS.timeoutMs);
    return answer;
  }

  async until(condition: () => boolean): Promise<void> {
    if (condition()) return;
    const met = new Promise<void>((resolve) => (this.#awaited = { condition, resolve }));
    if (!(await this.subject.wait(met, LIMIT_MS))) this.late(`incomplete after ${LIMIT_MS} ms`);
  }

  /** A stream has brought something. */
  changed(): void {
    if (this.#awaited?.condition()) this.#awaited.resolve();
  }
}
