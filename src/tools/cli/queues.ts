// The commands that look at the queues of locks and elections, and the one that removes an entry.
// - `ls` and `show` read only: they need no session, and no right but to read the keys.
// - `show` also counts the runs of `once`. That is a request more, and needs the right to read its marks, so `inspect` does not do it: it is
//   called for each lock that a page shows, again and again.
// - `ls` writes each page before it reads the next one, so its memory and the time to its first line do not grow with the
//   number of locks.
// - `release` removes what it has shown, or nothing: it deletes by the create revision that it has read. It never removes
//   anything without a yes: the answer on a terminal, or `--yes`.
import { createInterface } from "node:readline";
import {
  type Cluster,
  type Contender,
  forceRelease,
  inspect,
  list,
  type LockSummary,
  type QueueState,
} from "../../index.js";
import { freeText, holdingText, stateText } from "../../contender.js";
import { printable } from "../../base/util/printable.js";
import { countsText } from "../../observe/inspect.js";
import { command, formatDuration, parseInteger } from "./command.js";
import {
  CliError,
  columnsOf,
  EXIT,
  type Io,
  json,
  type Output,
  usageError,
  tableFor,
  width,
  write,
  contenderJson,
  hexLease,
  holderCell,
  ownerText,
  reasonOf,
  whoText,
} from "./io.js";
import type { LockJson, QueueJson, ReleaseJson } from "./json-types.js";
import { countRuns } from "../../recipes/once/run-counts.js";
import { runsOf, runsText } from "./once.js";

/** As many as the library reports. */
const MAX_LIMIT = 1000;

/** What a table shows for a value that an entry does not have. */
const NONE = "-";

/** How long ago it joined the queue. */
const ageText = ({ since }: Contender, now: number): string =>
  since === undefined ? NONE : formatDuration(now - since.getTime());

type Column = readonly [title: string, cell: (contender: Contender, now: number) => string];

const COLUMNS: readonly Column[] = [
  [
    "STATE",
    (contender) =>
      contender.state === "dead" ? `dead, ${freeText(contender.ttlRemainingMs)}` : stateText(contender),
  ],
  ["OWNER", ownerText],
  ["WEIGHT", ({ weighted }) => (weighted ? `${weighted.weight} of ${weighted.permits}` : NONE)],
  ["PRIORITY", ({ priority }) => `${priority ?? NONE}`],
  ["REASON", (contender) => reasonOf(contender) ?? NONE],
  ["JOINED", ageText],
  ["SINCE", ({ since }) => since?.toISOString() ?? NONE],
  ["TTL LEFT", ({ ttlRemainingMs: ms }) => (ms === undefined ? NONE : formatDuration(ms))],
  ["LEASE", ({ leaseId }) => (leaseId === 0n ? NONE : hexLease(leaseId))],
  ["FENCE", ({ revision }) => revision.toString()],
  ["KEY", ({ key }) => key],
];

/** Without reasons, weights and priorities if no contender has one. */
function columnsFor(contenders: readonly Contender[]): readonly Column[] {
  const omitted = new Set<string>();
  if (contenders.every((contender) => reasonOf(contender) === undefined)) omitted.add("REASON");
  if (contenders.every(({ weighted }) => weighted === undefined)) omitted.add("WEIGHT");
  if (contenders.every(({ priority }) => priority === undefined)) omitted.add("PRIORITY");
  return COLUMNS.filter(([title]) => !omitted.has(title));
}

const titlesOf = (columns: readonly Column[]): string[] => columns.map(([title]) => title);

const rowOf = (columns: readonly Column[], contender: Contender, now: number): string[] =>
  columns.map(([, cell]) => cell(contender, now));

/** The names in one request to the library: enough for few requests, and few enough for the first lines to come at once. */
const PAGE = 200;

export const ls = command({
  name: "ls",
  args: "[PREFIX]",
  positionals: [0, 1],
  endsWithOutput: true,
  summary: "list locks and elections",
  help: [
    "Lists the locks and elections whose names start with PREFIX, or all of them: kind, owner of the holder, how long ago the " +
      "holder joined the queue, number of waiters. It writes them page by page, as of one revision of etcd.",
    "(sticky): the session of the owner may keep the key while no caller has the lock. (free in 16 s): the owner is dead, and its release " +
      "delay keeps its place.",
    "Exit code 0 also if there are none.",
  ],
  flags: { limit: { value: "N", text: "list at most N locks; default all" } },
  async run({ positionals: [prefix = ""], flags, io, connect, signal, now, json: wantsJson }) {
    const most = { min: 1, max: Infinity };
    let left = flags.limit === undefined ? Infinity : parseInteger("limit", flags.limit, most);
    const cluster = connect();
    const table = tableFor(["NAME", "KIND", "HOLDER", "JOINED", "WAITERS"], io.stdout);
    let cursor: string | undefined;
    do {
      const page = await list(cluster, prefix, { limit: Math.min(left, PAGE), cursor, signal });
      const lines = wantsJson
        ? page.locks.map((lock) => json(lockJson(lock))).join("")
        : table.add(page.locks.map((lock) => cells(lock, now())));
      await write(io, lines);
      left -= page.locks.length;
      cursor = page.cursor;
      signal.throwIfAborted();
    } while (cursor !== undefined && left > 0);
    return EXIT.ok;
  },
});

const cells = ({ name, kind, holder, waiters }: LockSummary, now: number): string[] => [
  name,
  kind,
  holder === undefined ? NONE : holderCell(whoText(holder), holder),
  holder === undefined ? NONE : ageText(holder, now),
  waiters.toString(),
];

const lockJson = ({ name, kind, holder, waiters }: LockSummary): LockJson => ({
  name,
  kind,
  total: { waiters },
  holder: holder === undefined ? null : contenderJson(holder),
});

export const show = command({
  name: "show",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "show the holders and waiters of a lock, or the leader and candidates",
  help: [
    "Shows the holders and the waiters of a lock or an election in the order of the queue, of all clients: leasehold, Go, etcdctl, " +
      "jetcd.",
    "WEIGHT: how many permits of a weighted semaphore it takes, and how many there are. " +
      "PRIORITY: of its call; the waiters are listed as they come next. " +
      "REASON: why its caller wants the lock, if it has said so. JOINED: age of the entry, a holder's wait included. SINCE: when it joined. Both by the client's clock; - if the client writes no time. " +
      "TTL LEFT: until the lease ends, unless it is renewed. LEASE: the ID for etcdctl lease; - for a key without a lease, which never expires. FENCE: the create revision of the key, which is the fence of an exclusive lock.",
    "An entry that is held or kept is that of a sticky lock: its session may keep it while no caller has the lock.",
    "A dead entry keeps its place until the release delay of its session is over.",
    "Runs of once: how many of the youngest 100 slots of the name are in which state; leasehold once NAME lists them.",
    "Exit code 1: no client holds or waits.",
  ],
  flags: {
    limit: { value: "N", text: "show at most N holders and N waiters, up to 1000; default 100" },
  },
  async run({ positionals: [name = ""], flags, io, connect, signal, now, json: wantsJson }) {
    const limit = parseInteger("limit", flags.limit ?? "100", { min: 1, max: MAX_LIMIT });
    const cluster = connect();
    const [queue, runs] = await Promise.all([
      inspect(cluster, name, { limit, signal }),
      countRuns((limit) => runsOf(cluster, name, { limit, signal })),
    ]);
    const text = wantsJson
      ? json({ ...queueJson(queue), ...(runs && { runs }) } satisfies QueueJson)
      : `${textOf(queue, now(), io.stdout)}${runs ? runsText(runs, io.stdout) : ""}`;
    await write(io, text);
    if (queue.total.holders + queue.total.waiters > 0) return EXIT.ok;
    if (!wantsJson) io.stderr.write(`leasehold: no client holds ${JSON.stringify(name)} or waits for it\n`);
    return EXIT.nothing;
  },
});

const queueJson = ({ name, kind, holders, waiters, total, revision }: QueueState): QueueJson => ({
  name,
  kind,
  total,
  revision: revision.toString(),
  holders: holders.map(contenderJson),
  waiters: waiters.map(contenderJson),
});

function textOf(queue: QueueState, now: number, stdout: Output): string {
  const { name, kind, holders, waiters, total } = queue;
  if (total.holders + total.waiters === 0) return "";
  const columns = columnsFor([...holders, ...waiters]);
  const rows = (contenders: QueueState["holders"]): string[][] =>
    contenders.map((contender) => rowOf(columns, contender, now));
  const table = tableFor(titlesOf(columns), stdout);
  const [title, numbers] = [printable(name, Infinity), `${kind}  ${countsText(queue)}`];
  const room = stdout.isTTY ? columnsOf(stdout) : Infinity;
  return [
    `${title}${width(title) + 2 + width(numbers) > room ? "\n  " : "  "}${numbers}\n`,
    table.add(rows(holders), rows(waiters)),
    more(total.holders - holders.length, holdingText(holders)),
    table.add(rows(waiters)),
    more(total.waiters - waiters.length, "waiting"),
  ].join("");
}

const more = (count: number, state: string): string => (count > 0 ? `and ${count} more ${state}\n` : "");

/**
 * Asks on standard error, so that standard output has the result only, and reads one line. Anything but y or yes is a no, as
 * is the end of the input. @throws the signal's reason on abort.
 */
async function confirm({ stdin, stderr }: Io, question: string, signal: AbortSignal): Promise<boolean> {
  // Not as a terminal: readline would take Ctrl-C, which is to end the program as everywhere else.
  const lines = createInterface({ input: stdin, terminal: false });
  try {
    stderr.write(`${question} [y/N] `);
    const answer = await new Promise<string>((resolve, reject) => {
      lines.once("line", resolve);
      lines.once("close", () => resolve(""));
      stdin.once("error", () => resolve(""));
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      if (signal.aborted) reject(signal.reason);
    });
    return /^y(es)?$/i.test(answer.trim());
  } finally {
    lines.close();
    stdin.pause();
  }
}

/** What the user's word means: the holder of a name, or the entry of a key. */
interface Found {
  readonly queue: QueueState;
  readonly entry: Contender;
}

/** How the word is read; undefined: as what it is, if it is only one of them. */
type Reading = "name" | "key" | undefined;

/** @throws {CliError} if it is both, or if several hold. */
async function findEntry(
  cluster: Cluster,
  word: string,
  { reading, signal }: { readonly reading: Reading; readonly signal: AbortSignal },
): Promise<Found | undefined> {
  const options = { limit: MAX_LIMIT, signal };
  const queueName = reading === "name" ? undefined : nameOfKey(word);
  // A word that can be neither is inspected as a name: the library says which rule it breaks.
  const mayBeName = reading !== "key" && (queueName === undefined || isName(word));
  const [named, around] = await Promise.all([
    mayBeName ? inspect(cluster, word, options) : undefined,
    queueName !== undefined ? inspect(cluster, queueName, options) : undefined,
  ]);
  const byName = named?.holders[0];
  const byKey = around && entryOf(around, word);
  if (byName && byKey)
    throw usageError(
      `${JSON.stringify(word)} is the name of a lock and the key of an entry: give --as name or --as key`,
    );
  if (!named || !byName) return around && byKey ? { queue: around, entry: byKey } : undefined;
  if (named.total.holders === 1) return { queue: named, entry: byName };
  const count = `${named.total.holders} hold ${JSON.stringify(word)}`;
  throw new CliError(EXIT.usage, `${count}: give the key of one of them`, "leasehold show has the keys");
}

/** By its key: the same text may stand for two keys that are no text. */
function entryOf({ holders, waiters }: QueueState, key: string): Contender | undefined {
  const [entry, ...others] = [...holders, ...waiters].filter((contender) => contender.key === key);
  if (others.length > 0)
    throw usageError(`${others.length + 1} keys look like ${JSON.stringify(key)}: give the name`);
  return entry;
}

/** The library's rule for names. A key may be longer, and have empty parts. */
const isName = (word: string): boolean => !/^\/|\/$|\/\//.test(word) && Buffer.byteLength(word) <= 1024;

/** The queue of a key: readers and writers have folders of their own, and junk keys may have empty parts. */
function nameOfKey(key: string): string | undefined {
  const folder = key.slice(0, Math.max(0, key.lastIndexOf("/")));
  const name = folder
    .replace(/\/\/.*$/s, "")
    .replace(/\/+$/, "")
    .replace(/\/(read|write)$/, "");
  return name === "" || name.startsWith("/") ? undefined : name;
}

export const release = command({
  name: "release",
  args: "NAME|KEY",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "end a stuck hold, or remove a waiter, by force",
  help: [
    "Removes the holder of a lock, or the entry of one key as leasehold show prints it, after a confirmation. The removal compares " +
      "the create revision: it never hits a later holder.",
    "A holder of leasehold is notified that it has lost the lock; until it has stopped, only " +
      "its fence protects the next holder. A waiter of leasehold joins the queue again at its end.",
    "If several clients hold the lock, give the key of one, which must be among the first 1000 holders or waiters.",
    "Exit code 1: there was no entry to remove, or the answer was no.",
  ],
  flags: {
    yes: { short: "y", text: "do not ask; required without a terminal" },
    as: { value: "name|key", text: "how to read an argument that could be both" },
  },
  async run({ positionals: [word = ""], flags, io, connect, signal, now, json: wantsJson }) {
    const reading = flags.as;
    if (reading !== undefined && reading !== "name" && reading !== "key")
      throw usageError(`--as must be name or key, got ${JSON.stringify(reading)}`);
    const asks = flags.yes !== true;
    if (asks && !(io.stdin.isTTY && io.stderr.isTTY))
      throw new CliError(EXIT.usage, "release asks for confirmation, but there is no terminal", "give --yes");
    const cluster = connect();
    const found = await findEntry(cluster, word, { reading, signal });
    if (!found) return noEntry(io, word, wantsJson);
    if (asks && !(await confirm(io, questionOf(found, now(), io.stderr), signal))) {
      if (wantsJson) await write(io, json({ name: found.queue.name, released: null } satisfies ReleaseJson));
      else io.stderr.write("leasehold: nothing was released\n");
      return EXIT.nothing;
    }
    const released = await forceRelease(cluster, found.entry, { signal });
    if (!released) return noEntry(io, word, wantsJson);
    const result: ReleaseJson = { name: found.queue.name, released: contenderJson(found.entry) };
    await write(io, wantsJson ? json(result) : `${doneText(found)}\n`);
    return EXIT.ok;
  },
});

async function noEntry(io: Io, word: string, wantsJson: boolean): Promise<number> {
  if (wantsJson) await write(io, json({ name: word, released: null } satisfies ReleaseJson));
  else io.stderr.write(`leasehold: no entry to release: ${printable(word, Infinity)}\n`);
  return EXIT.nothing;
}

function questionOf({ queue, entry }: Found, now: number, stderr: Output): string {
  const columns = columnsFor([entry]);
  const lines = tableFor(titlesOf(columns), stderr).add([rowOf(columns, entry, now)]);
  return `${printable(queue.name, Infinity)}  ${queue.kind}  ${queue.total.waiters} waiting\n${lines}Remove it?`;
}

const doneText = ({ queue, entry }: Found): string =>
  [
    `released ${printable(queue.name, Infinity)}:`,
    ...[entry.state, printable(entry.owner ?? entry.key, Infinity), `key ${printable(entry.key, Infinity)}`],
    `fence ${entry.revision}`,
  ].join("  ");
