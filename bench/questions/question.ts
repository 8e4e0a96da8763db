import type { Field, Figures, Scale } from "../frame/field.js";
import type { PeerName } from "../peers/peers.js";

/** One figure of a table. */
export interface Column {
  readonly figure: string;
  /** Including its unit. */
  readonly title: string;
}

/** The same run for each peer, alternating within each round. */
export interface Case {
  readonly name: string;
  readonly peers: readonly PeerName[];
  /** Peers that no target compares: they take part in the last round only. */
  readonly others?: readonly PeerName[];
  /** Set if the question's usual number would be too many. */
  readonly rounds?: number;
  /** A point of the plot. */
  readonly contenders?: number;
  readonly run: (field: Field) => Promise<Figures>;
}

/** Identifies a figure in a report: of one case and one peer. */
export interface Which {
  readonly case: string;
  readonly peer: PeerName;
  readonly figure: string;
}

/** An expected result, as data. */
export interface Target extends Which {
  readonly title: string;
  /** The figure is divided by this one; omitted fields are the same. */
  readonly over?: Partial<Which>;
  readonly bound: Bound;
  /** Its line in docs/operations.md, if it has one: what it is over is Go's. */
  readonly shown?: string;
}
export type Bound = { readonly atLeast: number } | { readonly atMost: number };

export interface Question {
  /** The name on the command line. */
  readonly name: string;
  readonly title: string;
  readonly members: 1 | 3;
  readonly columns: readonly Column[];
  readonly targets: readonly Target[];
  readonly cases: (scale: Scale) => readonly Case[];
}
