// How many round trips a call takes: its time over a network that is slow, in units of that network's round trip.
import { startEtcd } from "../../test/support/etcd/etcd.js";
import { makeAuthority, writeServerFiles } from "../../test/support/fixtures/certificates.js";
import { startWithUsers, WORKER } from "../../test/support/fixtures/users.js";
import { startTcpProxy } from "../../test/support/proxies/tcp-proxy.js";
import { etcdOf, type Field } from "../frame/field.js";
import type { PeerName } from "../peers/peers.js";
import { median } from "../report/statistics.js";
import type { At, StepName } from "../worker/protocol.js";
import type { Case, Question, Target } from "./question.js";

/** So long that the processor's share is small. The handshake of TCP is the proxy's, which does not delay it. */
const WAY_MS = 50;
/** After one that loads the code. */
const SAMPLES = 5;
const QUICK: readonly [unjudged: number, samples: number] = [0, 1];

type Server = Omit<At, "name"> & { stop?: () => Promise<unknown> };

const plain = (field: Field): Promise<Server> =>
  Promise.resolve({ address: etcdOf(field).addresses[0] as string });

async function withUsers(): Promise<Server> {
  const { etcd } = await startWithUsers();
  return { address: new URL(etcd.member.endpoint).host, user: WORKER, stop: () => etcd.stop() };
}

async function withTls(): Promise<Server> {
  const authority = makeAuthority("the bench");
  const files = await writeServerFiles(authority, authority.issue("etcd"));
  const etcd = await startEtcd({ clientTls: { ...files, clientCertAuth: false } });
  const stop = () => Promise.all([etcd.stop(), files.remove()]);
  return { address: new URL(etcd.member.endpoint).host, ca: String(authority.certificate), stop };
}

const timing =
  (step: StepName, start: (field: Field) => Promise<Server> = plain) =>
  async (field: Field) => {
    const { stop, address, ...shown } = await start(field);
    const proxy = await startTcpProxy([{ port: Number(address.split(":")[1]) }]);
    try {
      proxy.delay(WAY_MS);
      const [process] = await field.crew.processes(1);
      const at = { ...shown, address: `localhost:${proxy.port}` };
      const times: number[] = [];
      const [unjudged, samples] = field.scale.quick ? QUICK : [1, SAMPLES];
      for (let n = 0; n < unjudged + samples; n++) {
        const ms = await process?.step(step, { ...at, name: `jobs/${field.name}-${n}` });
        if (n >= unjudged) times.push((ms ?? NaN) / (2 * WAY_MS));
      }
      return { least: Math.min(...times), p50: median(times) };
    } finally {
      await proxy.stop();
      await stop?.();
    }
  };

const ALL: readonly PeerName[] = ["leasehold", "go", "etcd3"];
const SESSIONS: readonly PeerName[] = ["leasehold", "go"];
const OWN: readonly PeerName[] = ["leasehold"];

/** What a call needs at least, and who has it. */
const ROWS: readonly (readonly [
  step: StepName,
  trips: number,
  peers: readonly PeerName[],
  how?: readonly [title: string, start: () => Promise<Server>],
])[] = [
  ["first lock", 2, ALL],
  ["first lock", 3, ALL, ["user and password", withUsers]],
  ["first lock", 3, ALL, ["TLS 1.3", withTls]],
  ["first tryLock, taken", 2, ALL],
  ["lock", 1, ALL],
  ["release", 1, ALL],
  ["lock and release", 2, ALL],
  ["lock, release not awaited, lock", 2, OWN],
  ["20 locks of 20 names", 1, ALL],
  ["tryLock", 1, ALL],
  ["lockAll of 5", 1, OWN],
  ["hand-over", 1, SESSIONS],
  ["lock that another process keeps", 2, OWN],
  ["campaign", 1, SESSIONS],
  ["proclaim", 1, SESSIONS],
  ["once, new slot", 2, OWN],
  ["close", 1, SESSIONS],
];

const titleOf = ([step, , , how]: (typeof ROWS)[number]): string => (how ? `${step}, ${how[0]}` : step);

export const roundTrips: Question = {
  name: "round-trips",
  title: `Round trips of single calls, over a network of ${2 * WAY_MS} ms`,
  members: 1,
  columns: [
    { figure: "least", title: "least round trips" },
    { figure: "p50", title: "median" },
  ],
  cases: () =>
    ROWS.map((row): Case => ({
      name: titleOf(row),
      peers: row[2],
      rounds: 1,
      run: timing(row[0], row[3]?.[1]),
    })),
  targets: ROWS.map((row): Target => ({
    title: `round trips: ${titleOf(row)}`,
    ...{ case: titleOf(row), peer: "leasehold", figure: "least", bound: { atMost: row[1] + 0.1 } },
  })),
};
