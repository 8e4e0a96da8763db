import type { Wait } from "../client.js";
import { EtcdGround } from "../grounds/etcd.js";
import type { Hold } from "../hold.js";
import { TTL_MS, type Stage } from "../stage.js";
import type { Subject } from "../subjects/subjects.js";

/** One trap, the same for every subject that can fall into it. */
export interface Scenario {
  /** For the command line. */
  readonly name: string;
  readonly title: string;
  /** Whom it can be played with; default: everybody. */
  suits?(subject: Subject): boolean;
  /** Of an etcd; default 1. */
  readonly members?: 1 | 3;
  /** Whether it looks at single gRPC calls. */
  readonly calls?: boolean;
  play(stage: Stage): Promise<void>;
}

export const onEtcd = ({ ground }: Subject) => ground === "etcd";
/** Places in a queue on the server are to be seen only where there is one. */
export const inQueue = ({ ground, queues }: Subject) => queues && ground === "etcd";

export function etcdOf({ ground }: Stage): EtcdGround {
  if (!(ground instanceof EtcdGround)) throw new TypeError("Expected a scenario on etcd");
  return ground;
}

/** Long enough to miss more than one renewal. */
export const LONG_MS = 2.5 * TTL_MS;
/** Long enough for a client that retries to find out that the lock is free. */
const LOOK_MS = TTL_MS / 2;

/** While `holder` goes on holding: nobody else may get in. */
export async function letOthersTry(stage: Stage, waits: readonly Wait[], holder?: Hold): Promise<void> {
  const others = waits.filter(({ id }) => id !== holder?.id);
  if (holder !== undefined) await stage.first(others, LOOK_MS);
}
