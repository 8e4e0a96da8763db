// A process whose sessions are to be lost: `losses-program.js HOSTS SESSIONS TTL`, forked. Each session has a cluster, and so
// a connection, of its own. It sends "ready", and the error of each session that is lost. The message { blockMs } blocks its
// event loop for that time.
import { connect, Session } from "leasehold";

const [hosts = "", sessions = "1", ttlSeconds = "2"] = process.argv.slice(2);

async function open() {
  const cluster = connect({ hosts, requestTimeoutMs: 500 });
  const session = await Session.open(cluster, { ttlSeconds: Number(ttlSeconds) });
  session.signal.addEventListener("abort", () =>
    process.send?.(
      JSON.parse(
        JSON.stringify({ ...session.signal.reason.toJSON(), caused: !!session.signal.reason.cause }),
      ),
    ),
  );
  // Renewed once: the link works.
  for (let before = Infinity, left = session.remainingMs(); left <= before && !session.signal.aborted;) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    [before, left] = [left, session.remainingMs()];
  }
}

process.on("message", (/** @type {{ blockMs: number }} */ { blockMs }) => {
  const end = performance.now() + blockMs;
  while (performance.now() < end);
});
process.on("disconnect", () => process.exit());
await Promise.all(Array.from({ length: Number(sessions) }, open));
process.send?.("ready");
