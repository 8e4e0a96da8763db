// Queues behind members that reject or ignore some requests.
import type { SimServer, UnaryRequest } from "../../etcd/types.js";
import type { Workload, World } from "./world.js";

/** As etcd's API answers while the quota is exceeded (api/v3rpc/rpctypes/error.go). */
const NO_SPACE = { refused: "etcdserver: mvcc: database space exceeded", code: 8 };

/** A member that treats some calls in a way of its own: "reject", or no answer and no execution. */
class PickyServer implements SimServer {
  readonly host: string;
  treat: (request: UnaryRequest) => "execute" | "reject" | "ignore" = () => "execute";

  constructor(private readonly server: SimServer) {
    this.host = server.host;
  }

  call(request: UnaryRequest, reply: Parameters<SimServer["call"]>[1]): void {
    const how = this.treat(request);
    if (how === "reject") reply(NO_SPACE);
    else if (how === "execute") this.server.call(request, reply);
  }

  keepalive(out: Parameters<SimServer["keepalive"]>[0]): ReturnType<SimServer["keepalive"]> {
    return this.server.keepalive(out);
  }

  watch(out: Parameters<SimServer["watch"]>[0]): ReturnType<SimServer["watch"]> {
    return this.server.watch(out);
  }
}

const has = (request: UnaryRequest, kind: "put" | "delete"): boolean =>
  request.kind === "txns" && request.txns.some(({ success }) => success.some((each) => each.kind === kind));

const picky = ({ etcd }: World): PickyServer[] => etcd.members.map((server) => new PickyServer(server));

/** Renewals get through while deletions do not: a release is over after one TTL. */
export const unansweredDeletes: Workload = async (world) => {
  const { leasehold, ttlSeconds, random } = world;
  const servers = picky(world);
  const node = world.node("a", servers);
  const lock = await new leasehold.Mutex(node.cluster, "x").lock();
  await world.sleep(random.between(0, 3000));
  for (const server of servers) server.treat = (request) => (has(request, "delete") ? "ignore" : "execute");
  const asked = world.kernel.now;
  let tookMs: number | undefined;
  void lock.release().then(
    () => (tookMs = world.kernel.now - asked),
    (error: unknown) => world.expect(false, "release in one TTL", String(error)),
  );
  await world.sleep(ttlSeconds * 1200);
  world.expect(tookMs !== undefined, "release in one TTL", `release() took longer than ${ttlSeconds} s`);
  for (const server of servers) server.treat = () => "execute";
  await world.sleep(5000);
  world.expect(world.keys("x").length === 0, "release in one TTL", "the key was left");
  await world.close();
};

/** A permit is granted while etcd rejects puts. When the next permit becomes free, the next waiter gets it. */
export const rejectedMark: Workload = async (world) => {
  const { leasehold, random } = world;
  const servers = picky(world);
  const [a, b, c, d] = ["a", "b", "c", "d"].map((name) => world.node(name, servers));
  const permit = (node: typeof a) => new leasehold.Semaphore(node!.cluster, "x", 2).acquire();
  const [first, second] = [await permit(a), await permit(b)];
  const third = permit(c);
  await world.sleep(random.between(20, 500));
  let granted = false;
  const fourth = permit(d).then((hold) => {
    granted = true;
    return hold;
  });
  await world.sleep(random.between(20, 500));
  for (const server of servers) server.treat = (request) => (has(request, "put") ? "reject" : "execute");
  await first.release();
  const marked = await third;
  await world.sleep(random.between(0, 2000));
  for (const server of servers) server.treat = () => "execute";
  await world.sleep(random.between(1500, 3000));
  await second.release();
  await world.sleep(3000);
  world.expect(granted, "a free permit is granted", "a waiter did not get a permit that was free for 3 s");
  await marked.release();
  await (await fourth).release();
  await world.close();
};
