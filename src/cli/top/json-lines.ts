import type { Board, BoardEntry, BoardQueue } from "../../board/board.js";
import { contenderJson } from "../command-line/contender-json.js";
import { json } from "../command-line/io.js";
import type { ContactJson, ContenderJson, LocksJson } from "../command-line/json-types.js";
import type { Contact } from "./contact.js";
import { Feed, type FeedSettings, type View } from "./feed.js";

/** So many holders of each lock: a lock may have thousands of readers. */
const MAX_HOLDERS = 10;

/** One object for each change, of the locks that changed since the one before. */
export function writeJsonLines(settings: FeedSettings): Promise<number> {
  const lines = new JsonLines();
  const feed = new Feed(settings, lines);
  lines.board = feed.board;
  return feed.ended;
}

class JsonLines implements View {
  board: Board | undefined;
  readonly #names = new Set<string>();
  readonly #contacts: Contact[] = [];
  #isFirst = true;

  changed(names: ReadonlySet<string>): void {
    for (const name of names) this.#names.add(name);
  }

  contact(contact: Contact): void {
    this.#contacts.push(contact);
  }

  draw(): string {
    const contacts = this.#contacts.splice(0).map(contactLine).join("");
    const { board } = this;
    if (!board || board.revision === 0n || (this.#names.size === 0 && !this.#isFirst)) return contacts;
    this.#isFirst = false;
    const line = changeLine(board, this.#names);
    this.#names.clear();
    return contacts + line;
  }
}

const contactLine = ({ state, error }: Contact): string =>
  json({
    ...{ event: "etcd", answers: state === "answers" },
    ...(error && { message: error.message }),
  } satisfies ContactJson);

/** The locks of these names as they are now; `gone`: those that nobody holds or waits for any more. */
export function changeLine(board: Board, names: Iterable<string>): string {
  const all = [...names];
  const locks = all.flatMap((name) => board.queue(name) ?? []).map(lockOf);
  const gone = all.filter((name) => board.queue(name) === undefined);
  const revision = board.revision.toString();
  return json({ event: "locks", revision, locks, gone } satisfies LocksJson);
}

const lockOf = ({ name, kind, holders, waiterCount, grants }: BoardQueue): LocksJson["locks"][number] => ({
  ...{ name, kind, total: { holders: holders.length, waiters: waiterCount }, grants },
  holders: holders.slice(0, MAX_HOLDERS).map((entry) => holderOf(name, entry)),
});

const holderOf = (name: string, { key, createRevision, leaseId, owner, since }: BoardEntry): ContenderJson =>
  contenderJson({
    ...{ name, key, state: "holding", revision: createRevision, leaseId },
    ...{ owner, since, ttlRemainingMs: undefined },
  });
