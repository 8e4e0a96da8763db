// Watches that another one of this process makes superfluous: it's wide, and reports their events anyway. They cost etcd nothing, and need no
// read, since the wide one was there before.
import type { WatchEvent } from "./port.js";
import {
  type Interruption,
  keyText,
  Watch,
  type WatchListener,
  type WatchOwner,
  type WatchTarget,
} from "./watch.js";

/** Deletions that are remembered: more than a wide watch reports while the answer to a request is under way. */
const MAX_DELETIONS = 4096;

interface Deletion {
  readonly key: Buffer;
  readonly revision: bigint;
}

/** The listener of a wide watch, and of all that share it. */
export class SharedWatch implements WatchListener, WatchOwner {
  readonly watch: Watch;
  /** Those that share it, by the directory of their keys. */
  readonly #sharing = new Map<string, Set<Watch>>();
  /** The latest last. */
  #deletions: Deletion[] = [];
  /** The revision of the last one that is forgotten. */
  #forgottenAt = 0n;

  /** `all`: those that can be shared. */
  constructor(
    { id, ...target }: WatchTarget & { readonly id: number },
    private readonly listener: WatchListener,
    private readonly all: Set<SharedWatch>,
  ) {
    this.watch = new WideWatch(id, target, this);
    all.add(this);
  }

  /** A watch that has reported, or will report, every deletion from revision `from` on; undefined if this one doesn't cover it. */
  take(target: WatchTarget, from: bigint, listener: WatchListener): Watch | undefined {
    const { createdAt, createdMs, over } = this.watch;
    const directory = directoryOf(target);
    if (directory === undefined || createdAt === undefined || createdAt >= from || over) return undefined;
    if (!this.#covers(target)) return undefined;
    const sharing = new Watch(this.watch.id, target, listener);
    [sharing.createdAt, sharing.owner] = [createdAt, this];
    // One that has reported an event is served at once from then on.
    if (this.watch.lastEvent === 0n) sharing.createdMs = createdMs;
    sharing.lastEvent = this.#lastIn(sharing, from);
    const there = this.#sharing.get(directory) ?? new Set<Watch>();
    this.#sharing.set(directory, there.add(sharing));
    return sharing;
  }

  #covers({ key, end }: WatchTarget): boolean {
    const [first, last] = [keyText(this.watch.key), keyText(this.watch.end ?? "")];
    return keyText(key) >= first && keyText(end ?? key) < last;
  }

  /** The revision of the last deletion in its range, if that may be younger than `from`. */
  #lastIn(sharing: Watch, from: bigint): bigint {
    for (let n = this.#deletions.length - 1; n >= 0; n--) {
      const { key, revision } = this.#deletions[n] as Deletion;
      if (revision < from) return 0n;
      if (sharing.covers(key)) return revision;
    }
    return this.#forgottenAt < from ? 0n : this.#forgottenAt;
  }

  drop(sharing: Watch): void {
    const directory = directoryOf(sharing) ?? "";
    const there = this.#sharing.get(directory);
    if (there?.delete(sharing) && there.size === 0) this.#sharing.delete(directory);
  }

  keepForReuse(): boolean {
    return false;
  }

  created(revision: bigint): void {
    this.listener.created(revision);
  }

  events(events: readonly WatchEvent[]): void {
    for (const { kind, kv } of events)
      if (kind === "DELETE") this.#deletions.push({ key: kv.key, revision: kv.modRevision });
    const excess = this.#deletions.length - MAX_DELETIONS;
    if (excess > MAX_DELETIONS) {
      this.#forgottenAt = this.#deletions[excess - 1]?.revision ?? 0n;
      this.#deletions = this.#deletions.slice(excess);
    }
    for (const directory of new Set(events.map(({ kv: { key } }) => directoryOf({ key }) ?? "")))
      for (const sharing of [...(this.#sharing.get(directory) ?? [])]) {
        const wanted = events.filter((event) => sharing.wants(event));
        const last = wanted.at(-1);
        if (!last || !this.#sharing.get(directory)?.has(sharing)) continue;
        sharing.lastEvent = last.kv.modRevision;
        sharing.listener.events(wanted);
      }
    this.listener.events(events);
  }

  interrupted(why: Interruption): void {
    this.end(why);
    this.listener.interrupted(why);
  }

  refused(error: Error): void {
    this.end("broken");
    this.listener.refused(error);
  }

  /** Those that share it have to watch by themselves. */
  end(why: Interruption): void {
    this.all.delete(this);
    const sharing = [...this.#sharing.values()].flatMap((there) => [...there]);
    this.#sharing.clear();
    for (const each of sharing) each.over = true;
    // None of them has a start revision of its own to be compacted.
    for (const { listener } of sharing) listener.interrupted(why === "compacted" ? "broken" : why);
  }
}

/** Its end is that of all that share it. */
class WideWatch extends Watch {
  readonly #shared: SharedWatch;

  constructor(id: number, target: WatchTarget, shared: SharedWatch) {
    super(id, target, shared);
    this.#shared = shared;
  }

  override cancel(): void {
    this.over = true;
    super.cancel();
    this.#shared.end("broken");
  }
}

/** Up to the last slash of both ends of the range; undefined if these differ. */
function directoryOf({ key, end = key }: Pick<WatchTarget, "key" | "end">): string | undefined {
  const [first, last] = [keyText(key), keyText(end)];
  const directory = first.slice(0, first.lastIndexOf("/"));
  return last.lastIndexOf("/") === directory.length && last.startsWith(directory) ? directory : undefined;
}
