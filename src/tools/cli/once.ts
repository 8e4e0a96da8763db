// The runs of `once`: `leasehold once NAME` lists them, and `show` counts them. Both read only, and need no session. Owners, errors and
// texts of slots are what the programs that have put the marks say: they are bounded, tables escape them, and JSON keeps them as they are.
import { type Cluster, once as onceOf, type OnceRecord } from "../../index.js";
import { ask } from "../../observe/inspect.js";
import { COUNTED } from "../../recipes/once/run-counts.js";
import { command, parseInteger } from "./command.js";
import { columnsOf, EXIT, json, type Output, tableFor, wrap, write } from "./io.js";
import type { OnceRecordJson, RunsJson } from "./json-types.js";

/** As many as the library reports. */
const MAX_LIMIT = 10_000;
/** Of an owner, and of a text with its name: other clients may write more. */
const [MAX_OWNER, MAX_SLOT] = [256, 1024];
const NONE = "-";

/** A text of another client, in so many characters. */
const bounded = (text: string, most: number): string =>
  text.length > most ? `${text.slice(0, most - 1)}…` : text;

/** The youngest ones first. @throws {EtcdUnavailableError} after five seconds without an answer. */
export const runsOf = (
  cluster: Cluster,
  name: string,
  { limit, signal }: { readonly limit: number; readonly signal: AbortSignal },
): Promise<readonly OnceRecord[]> => {
  const question = { what: `read the runs of "${name}"`, wait: { signal, timeoutMs: undefined } };
  return ask(cluster, question, ({ policy }) =>
    onceOf.history(cluster, name, { limit, signal: policy.signal }),
  );
};

const STATES = ["running", "done", "failed", "lost", "missed"] as const satisfies (keyof RunsJson)[];

export function runsText(runs: RunsJson, stdout: Output): string {
  const shown = STATES.filter((state) => state !== "missed" || runs.missed > 0);
  const counts = shown.map((state) => `${runs[state]} ${state}`);
  const all = STATES.reduce((sum, state) => sum + runs[state], 0);
  const line = `runs of once: ${counts.join(", ")}${all === COUNTED ? `, of the youngest ${COUNTED}` : ""}`;
  return wrap(line, stdout.isTTY ? columnsOf(stdout) : Infinity, "  ")
    .map((each) => `${each}\n`)
    .join("");
}

export const once = command({
  name: "once",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "list the runs of once, and of run --once",
  help: [
    "Lists the slots of a name that have run or run now, the youngest first: by whom, since when, and how they ended. SINCE and ENDED: by the clock of " +
      "the owner.",
    "running: its work runs now. done: it has ended. failed: it threw, or its command ended with another code than 0. lost: it was begun, and never " +
      "ended. missed: it was not to be run. A slot that is a text is quoted.",
    "Exit code 1: none has run, or their records are gone.",
  ],
  flags: { limit: { value: "N", text: "list at most N slots, up to 10000; default 100" } },
  async run({ positionals: [name = ""], flags, io, connect, signal, json: wantsJson }) {
    const limit = parseInteger("limit", flags.limit ?? "100", { min: 1, max: MAX_LIMIT });
    // One more shows that there are more.
    const found = await runsOf(connect(), name, { limit: Math.min(limit + 1, MAX_LIMIT), signal });
    const records = found.slice(0, limit);
    if (wantsJson) await write(io, records.map((record) => json(recordJson(record))).join(""));
    else {
      const table = tableFor(["SLOT", "STATE", "OWNER", "SINCE", "ENDED", "ERROR"], io.stdout);
      const more = found.length > limit ? `and more: see --limit\n` : "";
      await write(io, `${table.add(records.map(cells))}${more}`);
    }
    if (records.length > 0) return EXIT.ok;
    if (!wantsJson) io.stderr.write(`leasehold: no run of ${JSON.stringify(name)} is known\n`);
    return EXIT.nothing;
  },
});

function cells({ slot, state, owner, since, ended, error }: OnceRecord): string[] {
  return [
    // A text of digits is another slot than the number.
    typeof slot === "number" ? `${slot}` : JSON.stringify(bounded(slot, MAX_SLOT)),
    state,
    owner === undefined ? NONE : bounded(owner, MAX_OWNER),
    since?.toISOString() ?? NONE,
    ended?.toISOString() ?? NONE,
    error ? errorText(error) : NONE,
  ];
}

const errorText = ({ name, code, message }: NonNullable<OnceRecord["error"]>): string =>
  [code === undefined ? name : `${name} (${code})`, message].filter((text) => text !== "").join(": ");

function recordJson(record: OnceRecord): OnceRecordJson {
  const { slot, state, fence, owner, since, ended, error } = record;
  return {
    slot: typeof slot === "number" ? slot : bounded(slot, MAX_SLOT),
    state,
    ...(fence !== undefined && { fence: fence.toString() }),
    ...(owner !== undefined && { owner: bounded(owner, MAX_OWNER) }),
    ...(since && { since: since.toISOString() }),
    ...(ended && { ended: ended.toISOString() }),
    ...(error && {
      error: {
        ...{ name: error.name, ...(error.code !== undefined && { code: error.code }) },
        message: error.message,
      },
    }),
  };
}
