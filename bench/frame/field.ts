import type { Peer } from "../peers/peers.js";
import type { Crew } from "./crew.js";
import { EtcdGround, type Ground } from "./ground.js";

/** How long and how large a run is. */
export interface Scale {
  /** Few operations: to see that it runs. */
  readonly quick: boolean;
  readonly rounds: number;
}

/** Where one peer does one run. */
export interface Field {
  readonly peer: Peer;
  readonly crew: Crew;
  readonly ground: Ground;
  readonly scale: Scale;
  /** Processes for bare requests, also in another peer's run. */
  readonly bare: Crew;
  /** A name that no run had before. */
  readonly name: string;
}

/** The same figures in each round; `NaN` where there was nothing to count. */
export type Figures = Readonly<Record<string, number>>;

/** For what only etcd can be asked. */
export function etcdOf({ ground, peer }: Field): EtcdGround {
  if (ground instanceof EtcdGround) return ground;
  throw new TypeError(`Expected ${peer.name} to be measured on etcd`);
}
