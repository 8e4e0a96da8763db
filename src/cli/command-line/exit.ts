import { EtcdRefusedError, LeaseholdError } from "../../index.js";

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
  /** The lock was not granted in time. */
  timedOut: 75,
  /** The lock or the leadership was lost while the command ran. */
  lost: 76,
  /** etcd rejected a request, for example for lack of a right. */
  refused: 77,
  /** Of `run --once`: an earlier run of the slot has failed. sysexits.h ends at 78. */
  failedBefore: 79,
  /** The command exists and cannot be started. */
  notExecutable: 126,
  /** There is no such command. */
  notFound: 127,
  /** Plus the number of the signal that ended the command or this program. */
  signal: 128,
} as const;

/** An error that is told in one line: what failed, and what to do. */
export class CliError extends Error {
  constructor(
    readonly exitCode: number,
    message: string,
    /** What to do, without a capital and a period. */
    readonly cure?: string,
  ) {
    super(message);
  }
}

export const usageError = (message: string, command?: string): CliError =>
  new CliError(EXIT.usage, message, `see leasehold ${command === undefined ? "" : `${command} `}--help`);

const CURES: Partial<Record<LeaseholdError["code"], readonly [exitCode: number, cure?: string]>> = {
  ETCD_UNAVAILABLE: [EXIT.unavailable, "check --endpoints; leasehold doctor looks at each of them"],
  LOCK_TIMEOUT: [EXIT.timedOut],
  KIND_MISMATCH: [EXIT.usage, "leasehold show NAME shows the queue"],
  SESSION_LOST: [EXIT.lost],
  SESSION_CLOSED: [EXIT.lost],
  LOCK_LOST: [EXIT.lost],
  LOCK_EXPIRING: [EXIT.lost],
  LOCK_RELEASED: [EXIT.lost],
};

/** What any error means for the user of the command line. */
export function cliErrorOf(error: unknown): CliError {
  if (error instanceof CliError) return error;
  if (error instanceof EtcdRefusedError) return refused(error);
  if (error instanceof LeaseholdError) {
    const [exitCode, cure] = CURES[error.code] ?? [EXIT.internal];
    return new CliError(exitCode, error.message, cure);
  }
  // The library checks names and options, and says which rule one breaks.
  const misuse = error instanceof TypeError || error instanceof RangeError;
  if (misuse && /^(Expected|Unknown|Option) /.test(error.message)) return usageError(error.message);
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error);
  return new CliError(EXIT.internal, text, "this is a defect of leasehold: please report it");
}

function refused(error: EtcdRefusedError): CliError {
  const cures: Partial<Record<EtcdRefusedError["why"], string>> = {
    permission: "grant the user this right, or give another --user",
    unauthenticated: "check --user and --password",
    quota: "free space in etcd, then etcdctl alarm disarm",
    tls: "check --cacert, --cert, --key and --server-name; leasehold doctor looks at each endpoint",
    member: "check --endpoints; leasehold doctor looks at each of them",
  };
  return new CliError(EXIT.refused, error.message, cures[error.why]);
}
