// Calls the peer on a port once, over a connection of the library, and does nothing to end the process.
import { systemClock } from "../../../src/base/util/clock.js";
import { AbortFanOut } from "../../../src/base/util/abort.js";
import { Timers } from "../../../src/base/util/timers.js";
import { Channel, RequestHeaders } from "../../../src/etcd/http2/member.js";
import { UnaryStream } from "../../../src/etcd/http2/stream.js";

const [port, mode] = process.argv.slice(2);
const target = { hostname: "127.0.0.1", port: Number(port), tls: undefined };
const limits = { pingIntervalMs: 60_000, pingTimeoutMs: 60_000, connectTimeoutMs: 60_000 };
const deadlines = new Timers(systemClock);
const channel = new Channel(() => target, limits, deadlines);
const peer = { host: "http://etcd:2379", channel, deadlines, aborts: new AbortFanOut() };
const method = { path: "/test.Service/Method", decode: String };
const headers = new RequestHeaders(target).of(method.path, undefined);
const message = Buffer.from([0, 0, 0, 0, 0]);
const call = new UnaryStream(peer, { method, headers, message }, { timeoutMs: 600_000 });
call.run().then(
  (answer) => console.log(answer),
  (error: Error) => console.log(error.message),
);
if (mode === "retire") channel.retire();
if (mode === "cancel")
  setTimeout(() => {
    call.cancel();
    console.log("cancelled");
  }, 200);
