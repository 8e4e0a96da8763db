// `leasehold/testing` with an image. Run by `npm run test:all -- docker`.
import { describe, expect, it } from "vitest";
import { connect, LockLostError, Mutex } from "../../src/index.js";
import { startEtcd } from "../../src/testing/start.js";

const image = process.env["LEASEHOLD_ETCD_IMAGE"] ?? "leasehold-etcd";
const LIMIT = 120_000;

describe.each([1, 3] as const)("startEtcd({ image }) with %d member(s)", (members) => {
  it(
    "serves locks, and can be paused, restarted, and made to lose a lease and a key",
    { timeout: LIMIT },
    async () => {
      await using etcd = await startEtcd({ image, members, timeoutMs: LIMIT });
      await using cluster = connect({ hosts: etcd.hosts, session: { ttlSeconds: 4 } });
      const mutex = new Mutex(cluster, "container");

      const paused = await mutex.lock();
      await etcd.pause();
      await new Promise((resolve) => paused.signal.addEventListener("abort", resolve));
      expect(paused.signal.reason).toBeInstanceOf(LockLostError);
      await etcd.resume();

      const expired = await mutex.lock({ timeoutMs: LIMIT });
      expect(expired.fence).toBeGreaterThan(paused.fence);
      await etcd.expire(await cluster.session());
      await mutex.withLock(() => undefined, { timeoutMs: LIMIT });

      const lost = await mutex.lock({ timeoutMs: LIMIT });
      await etcd.lose(lost);
      expect(lost.signal.reason).toMatchObject({ loss: "deleted" });

      await etcd.kill(0);
      await etcd.restart(0);
      await mutex.withLock(() => undefined, { timeoutMs: LIMIT });
      await cluster.close();
      expect(await etcd.isQuiet({ timeoutMs: LIMIT })).toBe(true);
    },
  );
});
