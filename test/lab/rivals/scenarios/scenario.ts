import type { Wait } from "../client.js";
import { EtcdGround } from "../grounds/etcd.js";
import type { Hold } from "../hold.js";
import { TTL_MS, type Stage } from "../stage.js";
import type { Subject } from "../subjects/subjects.js";

/** One trap, the same for every subject that it applies to. */
export interface Scenario {
  /** The name on the command line. */
  readonly name: string;
  readonly title: string;
  /** Which subjects it can be played with; default: all. */
  suits?(subject: Subject): boolean;
  /** The number of members of an etcd cluster; default 1. */
  readonly members?: 1 | 3;
  /** Whether it needs to recognize single gRPC calls. */
  readonly calls?: boolean;
  /** The fault after which the time until somebody else is granted is measured, with what the holder goes through. */
  readonly measured?: { readonly fault: string; readonly holder: string };
  play(stage: Stage): Promise<void>;
}

export const onEtcd = ({ ground }: Subject) => ground === "etcd";
/** Queue places on the server can be observed only if the subject keeps a queue there. */
export const inQueue = ({ ground, queues }: Subject) => queues && ground === "etcd";

export function etcdOf({ ground }: Stage): EtcdGround {
  if (!(ground instanceof EtcdGround)) throw new TypeError("Expected a scenario on etcd");
  return ground;
}

/** Long enough to miss more than one renewal. */
export const LONG_MS = 2.5 * TTL_MS;
/** Long enough for a client that retries to find out that the lock is free. */
const LOOK_MS = TTL_MS / 2;

/** While `holder` continues to hold: no other client may be granted. */
export async function letOthersTry(stage: Stage, waits: readonly Wait[], holder?: Hold): Promise<void> {
  const others = waits.filter(({ id }) => id !== holder?.id);
  if (holder !== undefined) await stage.first(others, LOOK_MS);
}
