// The rules between the folders of src/, for the layers test and the figures.
import { folderOf } from "./imports.js";

/**
 * Files and folders by layer, lowest first: a file imports from lower layers and from its own folder. Folders of one
 * layer do not import each other.
 * @type {readonly (readonly string[])[]}
 */
export const LAYERS = [
  ["contender", "keys", "printable", "renewal-report"],
  ["base-error"],
  ["kinds", "etcd-errors"],
  ["errors"],
  ["options/", "diagnostics/"],
  ["async/", "fence", "is-leasehold-error", "lock-name", "report/"],
  ["log/"],
  ["etcd/port", "etcd/port-errors"],
  ["etcd/refusals/", "etcd/codec/", "etcd/http2/frames/"],
  ["etcd/http2/"],
  ["etcd/grpc/", "etcd/etcd3/"],
  ["etcd/retry", "etcd/backoff", "etcd/circuit-breakers", "etcd/concurrency-limit"],
  [
    "etcd/auth-token",
    "etcd/cluster-id",
    "etcd/trace-call",
    "etcd/transport/",
    "etcd/raft-term",
    "etcd/ranges",
  ],
  ["etcd/member-pool"],
  ["etcd/batch/"],
  ["etcd/client"],
  ["etcd/direct", "etcd/keepalive", "etcd/watch/"],
  ["session/renewal/"],
  ["session/"],
  ["queue/"],
  ["hold/", "observe/"],
  ["locks/", "once/", "election/", "web-locks/", "inspect/"],
  ["board/"],
  ["connect"],
  ["index", "otel/"],
  ["ui/protocol", "testing/servers/"],
  ["ui/", "ui/page/", "testing/"],
  ["cli/command-line/"],
  ["cli/completion/", "cli/doctor/", "cli/elections/", "cli/queues/", "cli/run/", "cli/top/", "cli/ui/"],
  ["cli/"],
];

/**
 * What other folders may import from a folder; the rest of it is private.
 * @type {Readonly<Record<string, readonly string[]>>}
 */
export const FRONT_DOORS = {
  async: [
    "abort-fan-out",
    "callers-stack",
    "clock",
    "deadlines",
    "first-abort",
    "once",
    "own-context",
    "settle-within",
    "task-tracker",
  ],
  diagnostics: ["channels", "message-json", "messages", "tracing"],
  log: ["context", "stderr", "subscribe"],
  report: ["health", "inspect", "reporting-cluster", "snapshot"],
  options: ["check", "connect", "etcdctl", "lock", "log", "once", "queue-wait"],
  etcd: ["backoff", "client", "keepalive", "port", "port-errors", "ranges", "retry"],
  "etcd/batch": ["batcher"],
  "etcd/codec": ["answers", "requests"],
  "etcd/etcd3": ["member"],
  "etcd/grpc": ["member"],
  "etcd/http2": ["connection", "failure", "socket", "stream"],
  "etcd/http2/frames": ["frame-reader", "frames", "hpack", "http2-error"],
  "etcd/refusals": ["failure-text", "refusals"],
  "etcd/transport": ["member-of", "member-states", "ping-intervals"],
  "etcd/watch": ["hub", "watch"],
  "session/renewal": ["lease-timers", "renewal-waits", "report"],
  session: [
    ...["cluster", "connect", "connection", "lease", "session-options", "session-source", "state-event"],
    ...["adopted-entries", "cleanup", "key-watch-schedule", "late-put-sweeper"],
  ],
  queue: [
    ...["contenders", "entry", "lock-mode", "lock-table", "permit-mode", "predecessor-wait", "queue"],
    ...["reader-mode", "txns", "waiter"],
  ],
  hold: [
    "acquire",
    "events",
    "hold",
    "hold-base",
    "reentrancy",
    "trace-acquire",
    "wait-for-turn",
    "with-lease",
  ],
  observe: ["feed", "queue-watch"],
  locks: ["lock-all", "mutex", "rwlock", "semaphore"],
  once: ["once"],
  election: ["election", "lead", "leader", "leadership"],
  inspect: [
    ...["ask", "entry", "force-release", "holders", "inspect", "list", "names", "read-queue", "state"],
    "watch-queue",
  ],
  board: ["board", "door"],
  "cli/command-line": [
    ...["arguments", "command", "connection", "contender-json", "duration", "exit", "help", "io"],
    ...["json-types", "output", "signals", "version"],
  ],
  "cli/completion": ["completion"],
  "cli/doctor": ["doctor"],
  "cli/elections": ["leader", "observe"],
  "cli/queues": ["ls", "release", "show"],
  "cli/run": ["lead", "run"],
  "cli/top": ["top"],
  "cli/ui": ["ui"],
  "testing/servers": ["find", "member-args", "ports", "server-process", "start-all"],
  ui: ["lock-page", "protocol"],
  "web-locks": ["arguments", "cluster-lock-manager", "snapshot"],
};

/** The number of a file's layer; -1 if the table does not contain it. @param {string} file */
export function layerOf(file) {
  return LAYERS.findIndex((names) => names.includes(file) || names.includes(`${folderOf(file)}/`));
}

/** Whether an import violates the table. @param {{ readonly from: string, readonly to: string }} arrow */
export function isUpward({ from, to }) {
  const climb = layerOf(to) - layerOf(from);
  return folderOf(from) === folderOf(to) ? climb > 0 : climb >= 0;
}
