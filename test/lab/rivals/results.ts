// The page that a run writes: the table, the violations by scenario, and what was not tested.
import type { Played } from "./play.js";
import { scenarios } from "./scenarios/scenarios.js";
import { PATIENCE_MS, TTL_SECONDS } from "./stage.js";
import { SUBJECTS, type Subject } from "./subjects/subjects.js";
import { takeOverTable } from "./take-overs.js";
import { detailsOf, LABELS, MEANINGS, tableOf, type Entry } from "./table.js";

const SCENARIOS = scenarios("");

export interface Outcome {
  readonly played: readonly Played[];
  /** Scenarios that could not be played, with the reason. */
  readonly failed: readonly string[];
  /** Scenarios for which the machine was too busy. */
  readonly stalled: readonly string[];
  readonly notRun: ReadonlyMap<Subject, string>;
}

const NOTES =
  "`violated n, t`: n violations, the longest lasted t. `kept (n)`: n occasions to violate it, none was taken. `–`: there was no occasion. `no token`, `no order promised`: the subject does not have it, so cannot break it.";

const TAKE_OVERS =
  "Another client waits meanwhile; `kept (n)`: it was not granted in any of n rounds. The time is from the fault on. Blocked: the main thread stands still, or, in Go, one goroutine computes. Idle: the process does nothing with its lock. leasehold's `lead` ends the term of such a leader with `healthy` or `withinMs`.";

const USAGE = [
  `Every lock has a TTL of ${TTL_SECONDS} s; an acquire has ${(3 * PATIENCE_MS) / 1000} s, where the scenario is not about its time limit.`,
  "Each subject is used as its README shows. redlock: `using`, with the README's settings and as many retries as the time limit allows. redis-semaphore and ioredis: their defaults, by which ioredis has no command timeout. etcd3: its Lock does not wait, so a loop of ours tries again. Go: one session per process, and the fence is what `IsOwner` compares; a session is one owner there, by design, so that two locks of one process do not exclude each other.",
  "What a client claims is its own word where it has one (leasehold's `lock.held`, redis-semaphore's `isAcquired`, redlock's `signal`, Go's `session.Done()`), otherwise the time from grant to release (etcd3). Time in which a process was stopped counts for nobody.",
  "The shared counter refuses a token older than one it has seen, from those that have tokens.",
  "A run in which the machine itself stood still for a moment is played again: it would be blamed on the subject.",
];

const UNTESTED = [
  "the wall clock of Go's client (it cannot be moved from inside the process), and Go with a session for each lock",
  "Redis with AOF and fsync, Sentinel, Cluster, `WAIT`; five masters; ioredis with a `commandTimeout`",
  "semaphores, and locks of several resources at once",
  "a master that comes back as a replica, or two masters at once (split brain)",
  "clock drift, network namespaces, slow disks",
];

/** Markdown. */
export function resultsOf(
  { played, failed, stalled, notRun }: Outcome,
  { seed, seconds }: { seed: string; seconds: number },
): string {
  const ordered = SCENARIOS.flatMap(({ name }) => played.filter((it) => it.scenario.name === name));
  const entries = ordered.map(entryOf);
  const shown = SUBJECTS.filter((subject) => played.some((it) => it.subject === subject));
  const titles = shown.map(({ title }) => title);
  const how = `seed \`${seed}\`, ${seconds.toFixed(0)} s, Node.js ${process.versions.node}`;
  const missing = [...notRun].map(([{ title }, why]) => `${title}: ${why}`);
  const takeOvers = takeOverTable(ordered, titles);
  const parts = [
    "# Other locks under the same faults",
    `Written by \`npm run chaos:rivals -- --write\`: ${how}, ${serversOf(played)}.`,
    tableOf(entries, titles).join("\n"),
    NOTES,
    takeOvers === "" ? "" : `## A dead, a blocked and an idle holder\n\n${takeOvers}\n\n${TAKE_OVERS}`,
    listed("Columns", columns()),
    listed("How it was run", USAGE),
    "## Violations, by scenario",
    ...titles.map((title) => listed(title, detailsOf(entries, title), "###")),
    listed("Scenarios", scenariosOf(played)),
    listed("Not tested", UNTESTED),
    listed("Not run", missing),
    listed("Not judged", stalled),
    listed("Could not be played", failed),
  ];
  return `${parts.filter((part) => part !== "").join("\n\n")}\n`;
}

const entryOf = ({ subject, scenario, findings }: Played): Entry => ({
  ...{ subject: subject.title, scenario: scenario.name, findings },
});

const columns = () =>
  LABELS.map((label) => `**${MEANINGS[label].short}** (${label}): ${MEANINGS[label].long}`);

const serversOf = (played: readonly Played[]) =>
  [...new Set(played.map(({ version }) => version))].sort().join("; ");

function scenariosOf(played: readonly Played[]): string[] {
  const all = SCENARIOS.filter((scenario) => played.some((it) => it.scenario.name === scenario.name));
  return all.map(({ name, title }) => `\`${name}\`: ${title}`);
}

/** A heading and its list; an empty list has no heading. */
function listed(title: string, items: readonly string[], level = "##"): string {
  return items.length === 0 ? "" : `${level} ${title}\n\n${items.map((item) => `- ${item}`).join("\n")}`;
}
