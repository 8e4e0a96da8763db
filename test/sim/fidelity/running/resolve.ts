import type { Compare, KeyValue, Operation, Range, Txn } from "../../../../src/etcd/port.js";
import type {
  Key,
  PlannedCompare,
  PlannedOperation,
  PlannedRange,
  PlannedTxn,
  Revision,
} from "../programs/program.js";

/** The revisions that a program names, by what its store has answered so far. */
export class RevisionResolver {
  start = 0n;
  now = 0n;
  compacted = 0n;

  /** `read`: the key at present. */
  constructor(private readonly read: (key: Key) => Promise<KeyValue | undefined>) {}

  begin(revision: bigint): void {
    this.start = this.now = this.compacted = revision;
  }

  saw(revision: bigint): void {
    if (revision > this.now) this.now = revision;
  }

  compactedTo(revision: bigint): void {
    if (revision > this.compacted) this.compacted = revision;
  }

  async revision(revision: Revision): Promise<bigint> {
    if (revision.at === "exactly") return revision.revision;
    if (!("key" in revision)) return this[revision.at] + BigInt(revision.plus);
    const kv = await this.read(revision.key);
    if (!kv) return 0n;
    return (revision.at === "created" ? kv.createRevision : kv.modRevision) + BigInt(revision.plus);
  }

  async range(planned: PlannedRange): Promise<Range> {
    const { maxCreateRevision, revision, ...rest } = planned;
    return {
      ...rest,
      ...(maxCreateRevision && { maxCreateRevision: await this.revision(maxCreateRevision) }),
      ...(revision && { revision: await this.revision(revision) }),
    };
  }

  async txns(planned: readonly PlannedTxn[]): Promise<Txn[]> {
    const txns: Txn[] = [];
    for (const { compare, success, failure } of planned)
      txns.push({
        queues: [],
        compare: await inOrder(compare, (each) => this.#compare(each)),
        success: await inOrder(success, (each) => this.#operation(each)),
        failure: await inOrder(failure, (each) => this.#operation(each)),
      });
    return txns;
  }

  async #compare(planned: PlannedCompare): Promise<Compare> {
    if (planned.kind === "nothing in" || planned.kind === "value is") return planned;
    return { ...planned, revision: await this.revision(planned.revision) };
  }

  async #operation(planned: PlannedOperation): Promise<Operation> {
    return planned.kind === "range" ? { ...(await this.range(planned)), kind: "range" } : planned;
  }
}

async function inOrder<From, To>(items: readonly From[], map: (item: From) => Promise<To>): Promise<To[]> {
  const mapped: To[] = [];
  for (const item of items) mapped.push(await map(item));
  return mapped;
}
