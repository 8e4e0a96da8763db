import type { Deadlines } from "../../async/deadlines.js";
import { Connection, type ConnectionSetting } from "../http2/connection.js";
import type { Target } from "../http2/socket.js";
import type { Call } from "./call.js";

/** How many connections this process has opened: see `Target.turn`. */
let turns = 0;

/**
 * The connection to one peer. It opens with the first call. A connection that takes no new calls, but has not failed,
 * is replaced: the peer has asked for that (GOAWAY), all stream IDs are used, or it was lost while no call used it.
 */
export class Channel {
  #connection: Connection | undefined;
  #retired = false;

  constructor(
    private readonly target: Omit<Target, "turn">,
    private readonly setting: ConnectionSetting,
    private readonly deadlines: Deadlines,
  ) {}

  start(call: Call): void {
    const connection = this.#usable();
    call.startOn(connection, this);
    if (this.#retired) connection.retire();
  }

  /** Closes the connection as soon as no call uses it. */
  retire(): void {
    this.#retired = true;
    this.#connection?.retire();
  }

  #usable(): Connection {
    if (this.#connection?.usable) return this.#connection;
    this.#connection?.retire();
    this.#connection = new Connection({ ...this.target, turn: turns++ }, this.setting, this.deadlines);
    return this.#connection;
  }
}
