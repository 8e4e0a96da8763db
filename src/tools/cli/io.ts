import os from "node:os";
import type { Readable, Writable } from "node:stream";
import { EtcdRefusedError, LeaseholdError, type Contender } from "../../index.js";
import { freeText } from "../../contender.js";
import { printable } from "../../base/util/printable.js";
import type { ContenderJson } from "./json-types.js";

/** A stream of output, a terminal or not. */
export interface Output extends Writable {
  readonly isTTY?: boolean;
  readonly columns?: number;
  readonly rows?: number;
}

/** The outside world of one run of the program. `process` is one. */
export interface Io {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly stdin: Readable & { readonly isTTY?: boolean; setRawMode?(isRaw: boolean): unknown };
  readonly stdout: Output;
  readonly stderr: Output;
}

/** Bigints as decimal strings, as everywhere in this library. */
const bigints = (_key: string, value: unknown): unknown =>
  typeof value === "bigint" ? value.toString() : value;

/** One JSON text on one line. */
export const json = (value: unknown): string => `${JSON.stringify(value, bigints)}\n`;

/** The number of columns of a terminal that a text fills: wide East Asian characters and emoji fill two. */
export const width = (text: string): number => {
  let columns = 0;
  for (const char of text.normalize("NFC")) columns += NARROW.test(char) ? 0 : WIDE.test(char) ? 2 : 1;
  return columns;
};

/**
 * The lines of a text in at most so many columns, broken at spaces, or within a word that fills more than a line. The lines after
 * the first begin with `indent`. The text must have been escaped.
 */
export function wrap(text: string, columns: number, indent = ""): readonly string[] {
  if (columns === Infinity) return [text];
  const lines: string[] = [];
  let line = "";
  let isEmpty = true;
  const end = (): void => {
    lines.push(line.trimEnd());
    line = indent;
    isEmpty = true;
  };
  for (const [word] of text.matchAll(/ *[^ ]+/g)) {
    if (!isEmpty && width(line + word) > columns) end();
    for (const char of isEmpty && lines.length > 0 ? word.trimStart() : word) {
      if (!isEmpty && width(line + char) > columns) end();
      line += char;
      isEmpty = false;
    }
  }
  if (!isEmpty) end();
  return lines;
}

/** Characters of no width of their own can follow each other without end. */
const UNITS_PER_COLUMN = 4;

/** The text in exactly `columns` columns: escaped, and cut or padded. It comes from other clients. */
export function fit(text: string, columns: number, side: "left" | "right" = "left"): string {
  const cell = cut(text, columns);
  const space = " ".repeat(Math.max(0, columns - width(cell)));
  return side === "left" ? cell + space : space + cell;
}

/** At most so many columns; a longer text ends with "…". */
export function cut(text: string, columns: number): string {
  const maxUnits = columns * UNITS_PER_COLUMN + 2;
  // A variation selector changes the width of the character before it, by a rule of each terminal's own.
  const safe = printable(text, maxUnits)
    .replace(/\p{Variation_Selector}/gu, "")
    .normalize("NFC");
  if (width(safe) <= columns) return safe;
  let kept = "";
  for (const char of safe) {
    if (width(kept + char) > columns - 1) break;
    kept += char;
  }
  return columns > 0 ? `${kept}…` : "";
}

/** The columns of the stream's terminal. Without one, and for a terminal that does not know its size, 80. */
export const columnsOf = ({ isTTY, columns }: Output): number => (isTTY && columns) || 80;

const NARROW = /\p{Mn}|\p{Me}/u;
const WIDE =
  /[\u1100-\u115f\u2e80-\u303e\u3041-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;

/** A name, a key, a slot, or the numbers of shards: never cut, because the user may copy it. */
const WHOLE = new Set(["NAME", "KEY", "SHARDS", "SLOT"]);
/** Cut where there is no room. */
const TEXTS = new Set(["HOLDER", "OWNER", "LABELS", "REASON", "MEMBER", "VALUE", "FROM", "TO", "ERROR"]);
/** Left out where there is no room, the first one first: the key has the lease, and JOINED says when. */
const OPTIONAL = ["ENDED", "SINCE", "LEASE", "ZONE", "CAPACITY"];
const TEXT_WIDTH = 16;

/**
 * A table that is written page by page, under one line of titles: a column is as wide as its widest cell so far. On a terminal of
 * `room` columns, columns that there is no room for are left out, and owners and reasons are cut. A name or a key that does not fit stands on a line
 * of its own.
 */
export class GrowingTable {
  readonly #widths: number[];
  #titles: readonly string[];
  #begun = false;

  constructor(
    private readonly titles: readonly string[],
    private readonly room = Infinity,
  ) {
    this.#titles = titles;
    this.#widths = titles.map(width);
  }

  /** The lines of these rows, escaped; before the first of them the titles. The columns have room for `later` ones, too. */
  add(rows: readonly (readonly string[])[], later: readonly (readonly string[])[] = []): string {
    if (rows.length === 0) return "";
    const escaped = (row: readonly string[]): string[] => row.map((cell) => printable(cell, Infinity));
    const all = rows.map(escaped);
    for (const line of [...all, ...later.map(escaped)])
      for (const [n, cell] of line.entries()) this.#widths[n] = Math.max(this.#widths[n] ?? 0, width(cell));
    const widths = this.#fitted();
    const lines = this.#begun ? all : [[...this.titles], ...all];
    this.#begun = true;
    return lines.map((line) => this.#line(line, widths)).join("");
  }

  /** The width of each column that is shown, by its title. */
  #fitted(): ReadonlyMap<string, number> {
    const widths = new Map(this.titles.map((title, n) => [title, this.#widths[n] ?? 0]));
    const missing = (): number =>
      this.#titles.reduce((sum, title) => sum + (widths.get(title) ?? 0) + 2, -2) - this.room;
    const shrink = (titles: ReadonlySet<string>, least: number): void => {
      for (const title of this.#titles.filter((each) => titles.has(each))) {
        const now = widths.get(title) ?? 0;
        widths.set(title, Math.max(Math.min(now, least), Math.min(now, now - missing())));
      }
    };
    // Once the titles are written, their columns stay.
    if (!this.#begun)
      for (const title of OPTIONAL)
        if (missing() > 0) this.#titles = this.#titles.filter((each) => each !== title);
    shrink(TEXTS, TEXT_WIDTH);
    shrink(WHOLE, 4);
    shrink(TEXTS, 1);
    return widths;
  }

  #line(cells: readonly string[], widths: ReadonlyMap<string, number>): string {
    const own: string[] = [];
    const shown = this.#titles.map((title) => {
      const cell = cells[this.titles.indexOf(title)] ?? "";
      const columns = widths.get(title) ?? 0;
      if (width(cell) <= columns) return cell + " ".repeat(columns - width(cell));
      if (TEXTS.has(title)) return fit(cell, columns);
      own.push(cell);
      return " ".repeat(columns);
    });
    const line = shown.join("  ").trimEnd();
    const isFirst = WHOLE.has(this.#titles[0] ?? "");
    return (isFirst ? [...own, line] : [line, ...own.map((cell) => `  ${cell}`)])
      .map((each) => `${each}\n`)
      .join("");
  }
}

/** Programs get all columns, whole. */
export const tableFor = (titles: readonly string[], stream: Output): GrowingTable =>
  new GrowingTable(titles, stream.isTTY ? columnsOf(stream) : Infinity);

/** The exit codes of `leasehold`, from sysexits.h where it has one. A child's own code is passed on as it is. */
export const EXIT = {
  ok: 0,
  /** What was asked for is not there: no such lock, no leader. Of `doctor`: a check failed. */
  nothing: 1,
  /** Bad arguments. */
  usage: 64,
  /** etcd does not answer. */
  unavailable: 69,
  /** A defect of this program. */
  internal: 70,
  /** Standard output cannot be written. */
  output: 74,
  /** The lock was not granted in time, or another client runs the slot. */
  timedOut: 75,
  /** The lock or the leadership was lost while the command ran. */
  lost: 76,
  /** etcd rejected a request, for example for lack of a right. */
  refused: 77,
  /** `run --once`: an earlier run of the slot has failed. sysexits.h ends at 78. */
  failedBefore: 79,
  /** The command exists and cannot be started. */
  notExecutable: 126,
  /** There is no such command. */
  notFound: 127,
  /** Plus the number of the signal that ended the command or this program. */
  signal: 128,
} as const;

/** An error reported on one line: what failed, and what to do. */
export class CliError extends Error {
  constructor(
    readonly exitCode: number,
    message: string,
    /** What to do, without a capital and a period. */
    readonly hint?: string,
  ) {
    super(message);
  }
}

/** The hint is the help of the command: see `report` in main.ts. */
export const usageError = (message: string): CliError => new CliError(EXIT.usage, message);

const HINTS: Partial<Record<LeaseholdError["code"], readonly [exitCode: number, hint?: string]>> = {
  ETCD_UNAVAILABLE: [EXIT.unavailable, "start etcd, check --endpoints, or run leasehold doctor"],
  LOCK_TIMEOUT: [EXIT.timedOut],
  QUEUE_FULL: [EXIT.timedOut],
  SUPERSEDED: [EXIT.timedOut],
  ONCE_RUNNING: [EXIT.timedOut],
  KIND_MISMATCH: [EXIT.usage, "leasehold show NAME shows the queue"],
  SESSION_LOST: [EXIT.lost],
  SESSION_CLOSED: [EXIT.lost],
  LOCK_LOST: [EXIT.lost],
  LOCK_EXPIRING: [EXIT.lost],
  LOCK_RELEASED: [EXIT.lost],
};

/** Without the advice for a program that uses the library: the hint has that of the command line. */
export const messageOf = ({ message }: LeaseholdError): string =>
  message.replace(
    /(\. Is etcd running\?)?(\.? To wait longer, first await cluster\.session\(\{ timeoutMs \}\))?$/,
    "",
  );

/** What any error means for the user of the command line. */
export function cliErrorOf(error: unknown): CliError {
  if (error instanceof CliError) return error;
  if (error instanceof EtcdRefusedError) return refused(error);
  if (error instanceof LeaseholdError) {
    const [exitCode, hint] = HINTS[error.code] ?? [EXIT.internal];
    return new CliError(exitCode, messageOf(error), hint);
  }
  // The library checks names and options, and says which rule one breaks.
  const misuse = error instanceof TypeError || error instanceof RangeError;
  if (misuse && /^(Expected|Unknown|Option) /.test(error.message)) return usageError(error.message);
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return new CliError(EXIT.internal, text, "this is a defect of leasehold: please report it");
}

function refused(error: EtcdRefusedError): CliError {
  const hints: Partial<Record<EtcdRefusedError["reason"], string>> = {
    permission: "grant the user this right, or give another --user",
    unauthenticated: "check --user and --password",
    quota: "free space in etcd, then etcdctl alarm disarm",
    tls: "check --cacert, --cert, --key and --server-name, or run leasehold doctor",
    member: "check --endpoints, or run leasehold doctor",
  };
  return new CliError(EXIT.refused, error.message, hints[error.reason]);
}

/** That the reader of standard output has gone, or that it cannot be written. */
export interface OutputEnd {
  /** Aborts then, with "SIGPIPE" as reason. */
  readonly signal: AbortSignal;
  /** That of a program that SIGPIPE has ended, or `EXIT.output`; undefined before it. */
  readonly exitCode: number | undefined;
}

/**
 * Listens for errors of both streams until the process ends: the error of a write comes after the write has returned. Node.js
 * ignores SIGPIPE, so without this, `| head -1` would end the program with the stack trace of an uncaught error.
 */
export function outputEnd({ stdout, stderr }: Io): OutputEnd {
  const controller = new AbortController();
  let exitCode: number | undefined;
  stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (exitCode !== undefined) return;
    const closed = error.code === "EPIPE";
    exitCode = closed ? EXIT.signal + os.constants.signals.SIGPIPE : EXIT.output;
    if (!closed) stderr.write(`leasehold: cannot write to standard output: ${error.message}\n`);
    controller.abort("SIGPIPE");
  });
  // The reader has gone.
  stderr.on("error", () => {});
  return {
    signal: controller.signal,
    get exitCode() {
      return exitCode;
    },
  };
}

/** Resolves when the stream has taken the text, or has failed: `outputEnd` reports that. Awaiting it bounds what is buffered. */
export const write = ({ stdout }: Pick<Io, "stdout">, text: string): Promise<void> =>
  new Promise((resolve) => void stdout.write(text, () => resolve()));

const ENDING: readonly NodeJS.Signals[] = ["SIGINT", "SIGTERM", "SIGHUP"];

/** The signals that ask this program to stop. */
export interface EndSignal {
  /** Aborts with the name of the first signal. */
  readonly signal: AbortSignal;
  /** 128 plus the number of that signal; undefined before it. */
  readonly exitCode: number | undefined;
  /** The signals that end the program now. A command may take one of them for itself. */
  readonly ends: Set<NodeJS.Signals>;
  /** Resolves with true when the program gets another one from now on. */
  again(): Promise<true>;
}

/** Takes SIGINT, SIGTERM and SIGHUP from now on until the process has ended: a command ends in order when it gets one of them. */
export function endSignal(): EndSignal {
  const controller = new AbortController();
  let exitCode: number | undefined;
  const ends = new Set(ENDING);
  let again: (() => void) | undefined;
  const onSignal = (name: NodeJS.Signals): void => {
    if (!ends.has(name)) return;
    again?.();
    exitCode ??= EXIT.signal + os.constants.signals[name];
    controller.abort(name);
  };
  for (const name of ENDING) process.on(name, onSignal);
  return {
    signal: controller.signal,
    ends,
    get exitCode() {
      return exitCode;
    },
    again: () => new Promise((resolve) => (again = () => resolve(true))),
  };
}

/** As `etcdctl lease list` prints it. */
export const hexLease = (leaseId: bigint): string =>
  leaseId < 0n ? `-${(-leaseId).toString(16).padStart(15, "0")}` : leaseId.toString(16).padStart(16, "0");

/** In a table of locks, which has no column for the state. `who`: whom it belongs to. */
export const holderCell = (
  who: string,
  { state, sticky, ttlRemainingMs }: Pick<Contender, "state" | "sticky" | "ttlRemainingMs">,
): string => {
  if (state === "dead") return `(${freeText(ttlRemainingMs)}) ${who}`;
  return sticky ? `(sticky) ${who}` : who;
};

/** Whom an entry belongs to: its owner, the value of a candidate, or some other client. */
export const ownerText = ({
  owner,
  value,
  leaseId,
}: Pick<Contender, "owner" | "value" | "leaseId">): string => {
  const lease = leaseId === 0n ? "no lease" : `lease ${hexLease(leaseId)}`;
  return owner ?? value ?? `other client (${lease})`;
};

/** Undefined for an empty one, too, which another client may have written. */
export const reasonOf = ({ reason }: Pick<Contender, "reason">): string | undefined =>
  reason === "" ? undefined : reason;

/** `who` with the reason that its caller has given, as in "web-3:4242 (deploy 4711)". */
export function withReason(who: string, contender: Pick<Contender, "reason">): string {
  const reason = reasonOf(contender);
  return reason === undefined ? who : `${who} (${reason})`;
}

/** Whom an entry belongs to, and why it is there. */
export const whoText = (contender: Pick<Contender, "owner" | "value" | "leaseId" | "reason">): string =>
  withReason(ownerText(contender), contender);

/** Both spellings of a lease ID, as every line has them. */
export const leaseJson = (leaseId: bigint): Pick<ContenderJson, "leaseId" | "lease"> => ({
  leaseId: leaseId.toString(),
  lease: hexLease(leaseId),
});

/** Without what is undefined. */
export const contenderJson = (contender: Omit<Contender, "toJSON">): ContenderJson => {
  const { name, key, state, revision, leaseId, owner, reason, sticky, weighted, priority } = contender;
  const { since, value, ttlRemainingMs } = contender;
  return {
    name,
    key,
    state,
    revision: revision.toString(),
    ...leaseJson(leaseId),
    ...(owner !== undefined && { owner }),
    ...(reason !== undefined && { reason }),
    ...(sticky && { sticky }),
    ...(weighted !== undefined && { weighted }),
    ...(priority !== undefined && { priority }),
    ...(value !== undefined && { value }),
    ...(since !== undefined && { since: since.toISOString() }),
    ...(ttlRemainingMs !== undefined && { ttlRemainingMs }),
  };
};
