import { givesBack, takesPlace, txnShape } from "../../support/clients/request-shape.js";
import type { FaultKind } from "../runner/ground.js";
import { onCalls, TXN, type Called } from "./calls.js";

/**
 * A join reads its key if the key already exists. The register's writes do not: a write that is sent twice would count
 * twice.
 */
const joins = (request: Buffer): boolean => takesPlace(request) && txnShape(request).failure.has("range");

/**
 * Like a proxy that retries when the connection behind it broke: etcd executes the call twice, and the client gets the
 * second answer.
 */
export const repeatFaults: readonly FaultKind<Called>[] = [
  onCalls("repeat-joins", { path: TXN, act: "repeat", which: joins }),
  onCalls("repeat-releases", { path: TXN, act: "repeat", which: givesBack }),
];
