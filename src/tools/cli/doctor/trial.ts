import {
  type Cluster,
  connect,
  EtcdRefusedError,
  EtcdUnavailableError,
  type Hold,
  inspect,
  LeaseholdError,
  Mutex,
  type Session,
} from "../../../index.js";
import { renewedChannel } from "../../../base/telemetry/channels.js";
import type { RenewedMessage } from "../../../base/telemetry/messages.js";
import {
  type Exam,
  excerpt,
  fail,
  type Finding,
  limited,
  NoAnswerError,
  ok,
  rounded,
  type Step,
  warn,
} from "./exam.js";

interface Refusal {
  readonly finding: Finding;
  /** etcd answers, though not as asked for. */
  readonly works: boolean;
  /** Another request may have another outcome. */
  readonly goesOn: boolean;
}

/** What an error of a read, a session or a lock says about the endpoint. @throws the error if it is no error of the library's */
function refusal(exam: Exam, error: unknown): Refusal {
  if (error instanceof EtcdRefusedError) return refused(exam, error);
  if (!(error instanceof LeaseholdError)) throw error;
  const finding = fail(
    error instanceof EtcdUnavailableError ? "answer" : "session",
    excerpt(error.message, 400),
    "see the log of this member: it may have lost its leader or a majority, be overloaded, or be cut off",
  );
  return { finding, works: false, goesOn: false };
}

const FULL =
  "compact and defragment (etcdctl compact, etcdctl defrag) or raise --quota-backend-bytes; then etcdctl alarm disarm";

function refused(exam: Exam, error: EtcdRefusedError): Refusal {
  const text = excerpt(error.message, 400);
  switch (error.reason) {
    case "permission":
      return { finding: fail("rights", text, rightsHint(exam)), works: true, goesOn: true };
    case "unauthenticated":
      return { finding: fail("login", text, loginHint(exam)), works: true, goesOn: false };
    case "quota":
      return { finding: fail("space", text, FULL), works: true, goesOn: false };
    case "tls":
      return {
        finding: fail("tls", text, "check --cacert, --cert, --key and --server-name"),
        works: false,
        goesOn: false,
      };
    case "member":
      return { finding: fail("server", text, memberHint(text)), works: false, goesOn: false };
    case "other":
      return { finding: fail("lock", text, "see the log of this member"), works: true, goesOn: false };
  }
}

const rightsHint = ({ auth, prefix }: Exam): string =>
  `grant ${auth ? `a role of ${excerpt(auth.username)}` : "a role of the certificate's user"} the right: ` +
  `etcdctl role grant-permission ROLE readwrite --prefix=true ${JSON.stringify(excerpt(prefix))}; ` +
  `or check the prefix of your own locks: leasehold doctor PREFIX`;

const loginHint = ({ auth }: Exam): string =>
  auth
    ? "check --user, --password and ETCDCTL_PASSWORD"
    : "etcd wants a user: give --user, and ETCDCTL_PASSWORD";

function memberHint(text: string): string {
  if (text.includes("grpc-proxy")) return "list the members of etcd in --endpoints, not the proxy";
  if (text.includes("learner")) return "promote it (etcdctl member promote), or take it out of --endpoints";
  if (text.includes("corrupt")) return "stop this member, remove its data, and add it to the cluster again";
  return "correct the host and the port in --endpoints";
}

const READS = 5;
const RENEWALS = 2;
/** A lock waits for several of them. */
const SLOW_MS = 100;

/** A lock of a name that no other program uses. */
interface Trial {
  readonly exam: Exam;
  readonly cluster: Cluster;
  readonly mutex: Mutex;
  readonly findings: Finding[];
}

/** Reads, a session for two renewals, and a lock, through this endpoint alone, as a program does it. */
export function trialOf(exam: Exam): {
  readonly cluster: Cluster;
  readonly step: Step;
  readonly close: () => Promise<void>;
} {
  const { host, credentials, auth, timeoutMs, ttlSeconds } = exam;
  const cluster = connect({
    hosts: host,
    ...(credentials && { credentials }),
    ...(auth && { auth }),
    requestTimeoutMs: timeoutMs,
    session: { ttlSeconds, owner: "leasehold doctor" },
  });
  const mutex = new Mutex(cluster, `${exam.prefix}${exam.clock.randomId().toString(16)}`);
  return {
    cluster,
    step: async (report) => {
      const trial = { exam, cluster, mutex, findings: report.findings };
      for (const part of [reads, locks]) {
        try {
          await part(trial);
          report.works = true;
        } catch (error) {
          exam.signal.throwIfAborted();
          const { finding, works, goesOn } = refusal(exam, error);
          report.findings.push(finding);
          report.works = works;
          if (!goesOn) break;
        }
      }
      return true;
    },
    close: () => cluster.close({ drainMs: 0 }),
  };
}

/** The first read opens the connection. */
async function reads({ exam, cluster, mutex, findings }: Trial): Promise<void> {
  const { signal, timeoutMs, clock } = exam;
  const took: number[] = [];
  for (let n = 0; n <= READS; n++) {
    const start = clock.monotonic();
    await inspect(cluster, mutex.name, { signal, timeoutMs });
    if (n > 0) took.push(clock.monotonic() - start);
  }
  const medianMs = took.sort((a, b) => a - b)[(READS - 1) / 2] ?? 0;
  const detail = `a linearizable read takes ${shown(medianMs)} (median of ${READS})`;
  const hint =
    "see etcd's disk (etcd_disk_wal_fsync_duration_seconds) and the network; use a TTL of ten round trips at least";
  const found =
    medianMs < SLOW_MS ? ok("read", detail) : warn("read", `${detail}; a lock takes longer`, hint);
  findings.push({ ...found, measured: rounded({ medianMs }) });
}

async function locks(trial: Trial): Promise<void> {
  const { exam, cluster, mutex, findings } = trial;
  const { signal, timeoutMs, clock } = exam;
  const wait = { signal, timeoutMs: 2 * timeoutMs };
  const session = await cluster.session(wait);
  const renewals = countRenewals(exam, session);
  // The failure of the renewals is reported below; the lock may fail before.
  renewals.catch(() => undefined);
  const start = clock.monotonic();
  const lock = await mutex.lock(wait);
  const lockMs = clock.monotonic() - start;
  findings.push(...(await ttlFinding(trial, session)));
  findings.push(...(await renewalFinding(renewals, session)));
  const releaseMs = await release(exam, lock);
  const left = (await inspect(cluster, mutex.name, wait)).total.holders;
  if (left > 0)
    findings.push(fail("lock", `${lock.key} is still there after its release`, "please report it"));
  const detail = `a lock takes ${shown(lockMs)}, its release ${shown(releaseMs)}`;
  findings.push(ok("lock", detail, { lockMs, releaseMs }));
}

async function release({ clock }: Exam, lock: Hold): Promise<number> {
  const start = clock.monotonic();
  await lock.release();
  return clock.monotonic() - start;
}

/** The latest of so many renewals. The session ends by itself if they fail, after 0.9 of its TTL. */
function countRenewals(exam: Exam, session: Session): Promise<RenewedMessage> {
  const timeoutMs = 1000 * session.ttlSeconds + exam.timeoutMs;
  return limited({ ...exam, timeoutMs }, (resolve, reject) => {
    let seen = 0;
    const renewed = (message: RenewedMessage): void => {
      if (message.leaseId === session.leaseId && ++seen === RENEWALS) resolve(message);
    };
    const { signal } = session;
    const ended = (): void => reject(signal.reason);
    renewedChannel.subscribe(renewed);
    if (signal.aborted) ended();
    signal.addEventListener("abort", ended);
    return () => {
      renewedChannel.unsubscribe(renewed);
      signal.removeEventListener("abort", ended);
    };
  });
}

async function renewalFinding(renewals: Promise<RenewedMessage>, session: Session): Promise<Finding[]> {
  const hint = "see the network and the load of this member; a longer --ttl shows whether it is just slow";
  try {
    const { durationMs } = await renewals;
    const detail = `${RENEWALS} renewals of a session with a TTL of ${session.ttlSeconds} s, the last in ${shown(durationMs)}`;
    return [ok("renewal", detail, { durationMs })];
  } catch (error) {
    if (!(error instanceof NoAnswerError)) throw error;
    return [fail("renewal", `fewer than ${RENEWALS} renewals in ${error.afterMs} ms`, hint)];
  }
}

/** etcd tells whole seconds, rounded down. leasehold gives up first, or else two clients could hold a lock. */
async function ttlFinding({ exam, cluster, mutex }: Trial, session: Session): Promise<Finding[]> {
  const { signal, timeoutMs } = exam;
  const before = session.remainingMs();
  const state = await inspect(cluster, mutex.name, { signal, timeoutMs });
  // A renewal in between counts in neither.
  const [theirs, ours] = [state.holders[0]?.ttlRemainingMs, Math.min(before, session.remainingMs())];
  if (theirs === undefined) return [];
  if (ours > theirs + 1000)
    return [
      fail(
        "ttl",
        `the lease has ${theirs} ms left by etcd, ${Math.round(ours)} ms by leasehold`,
        "see whether a proxy answers in etcd's place, and whether the machine's clock runs too slowly",
      ),
    ];
  const asked =
    session.ttlSeconds > exam.ttlSeconds
      ? `; the shortest TTL that it grants is ${session.ttlSeconds} s`
      : "";
  return [
    ok("ttl", `etcd counts the lease's TTL as leasehold does${asked}`, {
      theirsMs: theirs,
      oursMs: Math.round(ours),
    }),
  ];
}

const shown = (ms: number): string => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
