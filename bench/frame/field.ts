import type { Peer } from "../peers/peers.js";
import type { Crew } from "./crew.js";
import { EtcdGround, type Ground } from "./ground.js";

/** The length and the size of a run. */
export interface Scale {
  /** Few operations: only to check that it runs. */
  readonly quick: boolean;
  readonly rounds: number;
}

/** The environment in which one peer does one run. */
export interface Field {
  readonly peer: Peer;
  readonly crew: Crew;
  readonly ground: Ground;
  readonly scale: Scale;
  /** Processes for bare requests, even in another peer's run. */
  readonly bare: Crew;
  /** Another build of leasehold, if one is measured. */
  readonly build: string | undefined;
  /** A name that no earlier run has used. */
  readonly name: string;
}

/** The same figures in each round; `NaN` if there was nothing to count. */
export type Figures = Readonly<Record<string, number>>;

/** For what only etcd can answer. */
export function etcdOf({ ground, peer }: Field): EtcdGround {
  if (ground instanceof EtcdGround) return ground;
  throw new TypeError(`Expected ${peer.name} to be measured on etcd`);
}
