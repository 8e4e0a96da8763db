import type { QueueKind } from "../index.js";

/** A holder, as far as the overview and the histories show it. */
export interface SeenHolder {
  /** As `shortKey` cuts it. */
  readonly key: string;
  readonly owner: string | undefined;
  readonly since: Date | undefined;
  /** The create revision of its key. */
  readonly revision: bigint;
}

/** What the overview needs of a queue. */
export interface QueueView {
  readonly name: string;
  readonly kind: QueueKind;
  readonly holders: readonly SeenHolder[];
  readonly waiters: number;
}

/** How a hold has ended. */
export interface Ending {
  readonly name: string;
  readonly revision: bigint;
  readonly end: "released" | "lease ended";
}

/** Gets what a source finds. */
export interface SourceListener {
  /** The present state of these queues. One without entries has no holders and no waiters. */
  changed(views: readonly QueueView[]): void;
  /** How holds have ended, before or after the change that ended them. */
  ended(ending: Ending): void;
  /** Why nothing can be found now; undefined: all is well again. */
  problem(text: string | undefined): void;
}

/** Follows all queues under a prefix until it is closed. */
export interface Source {
  close(): void;
}

/** The listener is not called before this has returned. */
export type OpenSource = (listener: SourceListener) => Source;
