import type { LeaseAnswer, WatchAnswer } from "../../../src/etcd/port.js";
import type {
  ServerStream,
  SimServer,
  UnaryRequest,
  WatchCommand,
} from "../../../src/testing/memory/protocol.js";
import type { CallListener, StreamListener, Wire } from "../../../src/testing/memory/network/wire.js";

/** A wire without delay and loss. */
export class DirectWire implements Wire {
  constructor(private readonly server: SimServer) {}

  call(request: UnaryRequest, listener: CallListener): () => void {
    let over = false;
    // Not before this call has returned: no connection answers sooner.
    queueMicrotask(() => {
      if (over) return;
      listener.sent();
      this.server.call(request, (reply) => {
        if (over) return;
        over = true;
        listener.replied(reply);
      });
    });
    return () => (over = true);
  }

  keepalive(listener: StreamListener<LeaseAnswer>, token?: string): ServerStream<bigint> {
    return this.server.keepalive((answer) => listener.answer(answer), { token });
  }

  watch(listener: StreamListener<WatchAnswer>, token?: string): ServerStream<WatchCommand> {
    return this.server.watch((answer) => listener.answer(answer), { token });
  }

  retire(): void {}
}
