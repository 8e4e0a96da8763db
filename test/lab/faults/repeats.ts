import { givesBack, takesPlace, txnShape } from "../../support/clients/request-shape.js";
import type { FaultKind } from "../runner/ground.js";
import { onCalls, TXN, type Called } from "./calls.js";

/** A join reads its key when that is there already. The register's writes do not: sent twice, they would count twice. */
const joins = (request: Buffer): boolean => takesPlace(request) && txnShape(request).failure.has("range");

/** As by a proxy that retries when the connection behind it broke: etcd executes the call twice, the client hears the second. */
export const repeatFaults: readonly FaultKind<Called>[] = [
  onCalls("repeat-joins", { path: TXN, act: "repeat", which: joins }),
  onCalls("repeat-releases", { path: TXN, act: "repeat", which: givesBack }),
];
