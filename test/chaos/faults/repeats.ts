import { givesBack, takesPlace } from "../../support/request-shape.js";
import type { FaultKind } from "../lab/ground.js";
import { onCalls, TXN, type Called } from "./calls.js";

/** As by a proxy that retries when the connection behind it broke: etcd executes the call twice, the client hears the second. */
export const repeatFaults: readonly FaultKind<Called>[] = [
  onCalls("repeat-joins", { path: TXN, act: "repeat", which: takesPlace }),
  onCalls("repeat-releases", { path: TXN, act: "repeat", which: givesBack }),
];
