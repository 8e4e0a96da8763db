import type { Member, WatchRequest } from "../../../../src/etcd/port.js";
import { Normalizer, textOfError } from "./normalize.js";
import type { Outcome, PlannedRange, PlannedWatch, Program, Step } from "../programs/program.js";
import { RevisionResolver } from "./resolve.js";
import { RunLeases } from "./run-leases.js";
import { MARK, type RunningWatch, RunWatches } from "./run-watches.js";
import type { Subject } from "../subjects/subject.js";
import { OPTIONS, Waits } from "./waits.js";

/** Programs name revisions before their start: those are positive too. */
const LEAST_START = 40n;

/** What a program was answered. */
export interface Transcript {
  readonly outcomes: readonly Outcome[];
  readonly revisions: number;
  readonly events: number;
}

/** Runs a program, one step after another. */
export async function run(program: Program, subject: Subject): Promise<Transcript> {
  await subject.begin();
  const attempt = new Run(subject);
  try {
    await attempt.start();
    for (const [index, step] of program.entries()) await attempt.step(index, step);
    return await attempt.finish();
  } finally {
    attempt.close();
  }
}

class Run {
  readonly #subject: Subject;
  readonly #outcomes: Outcome[] = [];
  readonly #revisions: RevisionResolver;
  #normalizer = new Normalizer(0n);
  #watches!: RunWatches;
  #leases!: RunLeases;
  readonly #waits: Waits;

  constructor(subject: Subject) {
    this.#subject = subject;
    this.#waits = new Waits(subject, (text) => {
      this.#outcomes.push({ step: this.#outcomes.length, text: `${text}: ${this.#watches.missing()}` });
    });
    this.#revisions = new RevisionResolver(async (key) => {
      await this.#waits.until(() => this.#watches.reached(this.#revisions.now));
      return this.#watches.current(key);
    });
  }

  get #member(): Member {
    return this.#subject.member;
  }

  /** Writes, and a compaction of them all: a new store and a used one are in the same state then. */
  async start(): Promise<void> {
    while ((await this.#write("put")) < LEAST_START);
    const now = await this.#write("delete");
    await this.#subject.compact(now);
    this.#revisions.begin(now);
    this.#normalizer = new Normalizer(now);
    const changed = (): void => this.#waits.changed();
    this.#watches = new RunWatches(this.#member, now, { normalizer: this.#normalizer, changed });
    this.#leases = new RunLeases(this.#member, this.#normalizer, changed);
    await this.#waits.until(() => this.#watches.ready);
  }

  async step(index: number, step: Step): Promise<void> {
    const { seconds, text } = await this.#answer(index, step).then(
      (answer) => (typeof answer === "string" ? { text: answer, seconds: undefined } : answer),
      (error: unknown) => ({ text: textOfError(error), seconds: undefined }),
    );
    this.#outcomes.push({ step: index, text, seconds });
  }

  async finish(): Promise<Transcript> {
    await this.#settle();
    await this.#flush();
    const { events } = this.#watches;
    const revisions = Number(this.#revisions.now - this.#revisions.start);
    return { outcomes: [...this.#outcomes, ...this.#watches.outcomes()], revisions, events: events.length };
  }

  close(): void {
    this.#watches.close();
    this.#leases.close();
  }

  #answer(index: number, step: Step): Promise<string | { text: string; seconds: number }> {
    switch (step.kind) {
      case "txns":
        return this.#txns(step);
      case "range":
        return this.#range(step.range);
      case "grant":
        return this.#grant(step);
      case "revoke":
        return this.#revoke(step.leaseId);
      case "timeToLive":
        return this.#timeToLive(step);
      case "renew":
        return this.#renew(step.leaseId);
      case "watch":
        return this.#watch(index, step.watch);
      case "cancel":
        return this.#cancel(step.watchId);
      case "probe":
        return this.#probe();
      case "compact":
        return this.#compact(step);
      case "elapse":
        return this.#elapse(step.ms);
    }
  }

  async #txns({ txns }: Extract<Step, { kind: "txns" }>): Promise<string> {
    const resolved = await this.#revisions.txns(txns);
    const answers = await this.#waits.call(this.#member.txns(resolved, OPTIONS));
    for (const { header } of answers) this.#revisions.saw(header.revision);
    return this.#normalizer.txns(answers);
  }

  async #range(planned: PlannedRange): Promise<string> {
    const range = await this.#revisions.range(planned);
    const answer = await this.#waits.call(this.#member.range(range, OPTIONS));
    this.#revisions.saw(answer.header.revision);
    return `${this.#normalizer.header(answer.header)} ${this.#normalizer.range(answer)}`;
  }

  async #grant({ leaseId, ttlSeconds }: Extract<Step, { kind: "grant" }>): Promise<string> {
    return this.#leases.granted(await this.#waits.call(this.#member.grant(leaseId, ttlSeconds, OPTIONS)));
  }

  async #revoke(leaseId: bigint): Promise<string> {
    await this.#waits.call(this.#member.revoke(leaseId, OPTIONS));
    this.#leases.revoked(leaseId);
    await this.#look();
    return "ok";
  }

  async #timeToLive({ leaseId, withoutKeys }: Extract<Step, { kind: "timeToLive" }>) {
    const answer = await this.#waits.call(this.#member.timeToLive(leaseId, { ...OPTIONS, withoutKeys }));
    const { header, ttlSeconds } = answer;
    // etcd iterates over a Go map (lease.go, Keys): any order.
    const keys = answer.keys
      .map((key) => key.toString())
      .sort()
      .join(", ");
    const found = `lease=${answer.leaseId} ${ttlSeconds > 0 ? "" : `ttl=${ttlSeconds} `}keys [${keys}]`;
    return { text: `${this.#normalizer.header(header)} ${found}`, seconds: ttlSeconds };
  }

  async #renew(leaseId: bigint): Promise<string> {
    this.#leases.renew(leaseId);
    await this.#waits.until(() => this.#leases.answered);
    return this.#leases.renewal();
  }

  async #watch(index: number, planned: PlannedWatch): Promise<string> {
    const startRevision = await this.#revisions.revision(planned.startRevision);
    const request: WatchRequest = { ...planned, startRevision };
    this.#watches.create(request, index);
    await this.#waits.until(() => this.#watches.failed || this.#watches.created !== undefined);
    if (this.#watches.created === undefined) return "no answer";
    const watch = this.#watches.latest;
    if (watch.live && startRevision !== 0n && startRevision < this.#revisions.compacted)
      await this.#waits.until(() => this.#watches.failed || !watch.live);
    return this.#normalizer.watch(this.#watches.created);
  }

  async #cancel(watchId: number): Promise<string> {
    await this.#settle();
    const watch = this.#watches.find(watchId);
    this.#watches.cancel(watchId);
    if (watch) await this.#waits.until(() => this.#watches.failed || !watch.live);
    else await this.#flush();
    return watch ? "cancelled" : "-";
  }

  /** Not every probe is answered. */
  async #probe(): Promise<string> {
    await this.#settle();
    this.#watches.probes = [];
    this.#watches.probe();
    await this.#flush();
    return this.#watches.probes.join() || "no answer";
  }

  async #compact(step: Extract<Step, { kind: "compact" }>): Promise<string> {
    const revision = await this.#revisions.revision(step.revision);
    await this.#settle();
    const answer = await this.#subject.compact(revision);
    if (answer === "ok") this.#revisions.compactedTo(revision);
    return answer;
  }

  async #elapse(ms: number): Promise<string> {
    await this.#settle();
    await this.#subject.elapse(this.#leases.elapse(ms));
    await this.#look();
    return "-";
  }

  /** Until every event so far has arrived, and each watch from the past has been served once. */
  async #settle(): Promise<void> {
    await this.#look();
    await this.#waits.until(() => this.#watches.reached(this.#revisions.now));
    for (const watch of this.#watches.unserved) await this.#touch(watch);
    await this.#waits.until(() => this.#watches.settled(this.#revisions.now));
  }

  /** Some answers have no revision. */
  async #look(): Promise<void> {
    const { header } = await this.#waits.call(this.#member.range({ key: MARK }, OPTIONS));
    this.#revisions.saw(header.revision);
  }

  /** Until all has arrived that was sent to the watches of the program. */
  async #flush(): Promise<void> {
    this.#watches.flush();
    await this.#waits.until(() => this.#watches.failed || this.#watches.created !== undefined);
    const mark = await this.#write("put");
    await this.#waits.until(() => this.#watches.marked(mark) && this.#watches.settled(mark));
  }

  /** Writes what `watch` shows. */
  async #touch({ request }: RunningWatch): Promise<void> {
    const key = String(request.key) || "\0";
    await this.#write("put", key);
    if (request.events === "DELETE") await this.#write("delete", key);
  }

  async #write(kind: "put" | "delete", key = MARK): Promise<bigint> {
    const operation = kind === "put" ? { kind, key, value: "", leaseId: 0n } : { kind, key };
    const txn = { queues: [], compare: [], success: [operation], failure: [] };
    const [answer] = await this.#waits.call(this.#member.txns([txn], OPTIONS));
    this.#revisions.saw(answer!.header.revision);
    return answer!.header.revision;
  }
}
