import { remainingTtls } from "../queue/contenders.js";
import type { Cluster } from "../session/cluster.js";
import { servicesOf } from "../session/connection.js";
import { Board, type BoardListener } from "./board.js";

/** What `ui/` needs of a cluster, besides what every user has. */
export interface BoardDoor {
  open(prefix: string, listener: BoardListener): Board;
  /** Whether etcd has this lease no more. */
  hasEnded(leaseId: bigint): Promise<boolean>;
}

/**
 * `leasehold/ui` has a copy of this library's modules that knows no clusters. It finds the door of a cluster by this
 * symbol, which is the same in every copy.
 */
const DOOR: unique symbol = Symbol.for("leasehold.board") as never;

const READ_MS = 5000;

/** Not enumerable: logs and comparisons of a cluster show nothing of it. */
export function addBoardDoor(cluster: Cluster): void {
  const door: BoardDoor = {
    open: (prefix, listener) => Board.open(cluster, prefix, listener),
    hasEnded: async (leaseId) => {
      const services = servicesOf(cluster);
      const policy = { what: "read a lease", giveUpMs: READ_MS, signal: services.closed };
      return !(await remainingTtls(services, [leaseId], policy)).has(leaseId);
    },
  };
  Object.defineProperty(cluster, DOOR, { value: door });
}

/** Undefined if it is no cluster. */
export const boardDoorOf = (cluster: unknown): BoardDoor | undefined =>
  (Object(cluster) as { readonly [DOOR]?: BoardDoor })[DOOR];
