import type {
  AcquireMessage,
  CallMessage,
  HoldEndMessage,
  HoldLongMessage,
  LockMessage,
} from "../diagnostics/messages.js";
import { printable } from "../printable.js";
import type { LineContext } from "./context.js";
import { duration, listed, reason } from "./text.js";

const MAX_NAMES = 5;

const lock = ({ kind, names }: LockMessage): string =>
  `${kind} ${listed(names.slice(0, MAX_NAMES), names.length)}`;

/** Holds that end in an unusual way or last too long; and, for debugging, every acquisition, release and repeated call. */
export class LockLines {
  constructor(private readonly context: LineContext) {}

  acquired(call: AcquireMessage): void {
    const waited = call.waitedMs === undefined ? "" : ` after ${duration(call.waitedMs)}`;
    const fence = call.fence === undefined ? "" : `, fence ${call.fence}`;
    const { outcome = "error" } = call;
    if (outcome === "granted") return this.context.write("debug", `acquired ${lock(call)}${waited}${fence}`);
    const why = call.error === undefined ? "" : `: ${reason(call.error)}`;
    this.context.write("debug", `${lock(call)} not acquired${waited} (${outcome})${why}`);
  }

  holdEnded(message: HoldEndMessage): void {
    const { why, heldMs } = message;
    const held = `after ${duration(heldMs)}`;
    if (why === "released") return this.context.write("debug", `released ${lock(message)} ${held}`);
    if (why === "max hold")
      return this.context.write("warn", `${lock(message)} ended ${held}, the limit of its maxHoldMs`);
    const cause = message.reason ? `: ${reason(message.reason)}` : "";
    this.context.write("error", `${lock(message)} lost ${held}${cause}`);
  }

  heldLong(message: HoldLongMessage): void {
    const limit = `longer than its warnHoldMs of ${duration(message.warnHoldMs)}`;
    this.context.write("warn", `${lock(message)} held for ${duration(message.heldMs)}, ${limit}`);
  }

  called({ what, attempts, durationMs = 0, host, error }: CallMessage): void {
    if (attempts < 2) return;
    const end = error === undefined ? `answered by ${printable(host ?? "etcd")}` : `failed: ${reason(error)}`;
    const took = `${attempts} attempts and ${duration(durationMs)}`;
    this.context.write("debug", `call "${printable(what)}" took ${took}, ${end}`);
  }
}
