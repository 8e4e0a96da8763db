// Calls the peer on a port once, over a connection of the library, and does nothing to end the process.
import { systemClock } from "../../../src/util/clock.js";
import { Deadlines } from "../../../src/util/deadlines.js";
import { Call } from "../../../src/etcd/http2/call.js";
import { Channel, RequestHeaders } from "../../../src/etcd/http2/member.js";

const [port, mode] = process.argv.slice(2);
const target = { hostname: "127.0.0.1", port: Number(port), tls: undefined };
const limits = { pingIntervalMs: 60_000, pingTimeoutMs: 60_000, connectTimeoutMs: 60_000 };
const channel = new Channel(target, limits, new Deadlines(systemClock));
const headerBlock = new RequestHeaders(target).of("/test.Service/Method", undefined);
const call: Call = new Call(
  { headerBlock, urgent: false, unary: true },
  {
    sent: () => {},
    message: (message) => console.log(message.toString()),
    ended: () => {},
    failed: (failure) => console.log(failure.message),
  },
);
call.write(Buffer.from([0, 0, 0, 0, 0]));
channel.start(call);
if (mode === "retire") channel.retire();
if (mode === "cancel")
  setTimeout(() => {
    call.cancel();
    console.log("cancelled");
  }, 200);
