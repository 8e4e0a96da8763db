/** What the models know. */
export type ObjectKind =
  ("mutex" | "rwlock" | "semaphore" | "weighted") | ("register" | "result" | "latch" | "barrier");

/**
 * One operation on one name of an object, as README.md describes it. Times are nanoseconds since the start of the run; without
 * `to`, its outcome is unknown.
 */
export interface Operation {
  readonly object: ObjectKind;
  readonly name: string;
  readonly op:
    | "acquire"
    | "downgrade"
    | "rule"
    | "end"
    | "claim"
    | "gone"
    | "write"
    | "read"
    | "keep"
    | "replay"
    | "expire"
    | ("countDown" | "enlist" | "wait" | "count" | "reset" | "refused" | "hold" | "release" | "pass" | "die");
  /** The process, or `etcd`. */
  readonly client: string;
  readonly from: number;
  readonly to?: number;
  readonly fence?: number;
  readonly shared?: boolean;
  /** Of an acquire of a semaphore: the largest limit among its users. Of `rule`: the number of permits from then on. */
  readonly permits?: number;
  /** Of an acquire of a weighted semaphore, and of its end: how many permits it takes. */
  readonly weight?: number;
  /** Of an acquire: etcd has a key of this hold. */
  readonly placed?: boolean;
  /** Of an acquire: by the rules of the lab, it may not have taken effect, and its process cannot know yet. */
  readonly excused?: boolean;
  /** Of a write: undefined if unknown. */
  readonly accepted?: boolean;
  readonly value?: number;
  /** How many counts open a latch, as its caller says. */
  readonly number?: number;
  /** The ID of a count. */
  readonly item?: string;
}
