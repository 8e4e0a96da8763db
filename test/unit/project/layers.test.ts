// The imports of src/ against the rules between its folders: reading one file never needs the files above it.
import { describe, expect, it } from "vitest";
import { filesOf, findCycle, folderOf, importsOf } from "../../../scripts/imports.js";

/**
 * Files and folders by layer, lowest first: a file imports from lower layers and from its own folder. Folders of one
 * layer do not import each other.
 */
const LAYERS: readonly (readonly string[])[] = [
  ["contender", "keys", "printable"],
  ["errors"],
  ["options/"],
  ["async/", "fence"],
  ["etcd/port"],
  ["etcd/etcd3/", "etcd/retry", "etcd/backoff", "etcd/circuit-breakers", "etcd/concurrency-limit"],
  ["etcd/auth-token", "etcd/cluster-id", "etcd/ping-intervals", "etcd/raft-term", "etcd/ranges"],
  ["etcd/member-pool"],
  ["etcd/batch/"],
  ["etcd/client"],
  ["etcd/direct", "etcd/keepalive", "etcd/watch/"],
  ["session/"],
  ["queue/"],
  ["hold/"],
  ["locks/", "election/", "web-locks/"],
  ["index"],
];

/** What other folders may import of a folder; the rest of it is private. */
const FRONT_DOORS: Readonly<Record<string, readonly string[]>> = {
  async: ["abort-fan-out", "clock", "once", "settle-within", "task-tracker"],
  options: ["check", "connect"],
  etcd: ["backoff", "client", "keepalive", "port", "ranges", "retry"],
  "etcd/batch": ["batcher"],
  "etcd/etcd3": ["member"],
  "etcd/watch": ["hub", "watch"],
  session: [
    ...["cluster", "connection", "lease", "session", "session-source"],
    ...["adopted-entries", "cleanup", "key-audit", "late-put-sweeper"],
  ],
  queue: [
    ...["contenders", "entry", "lock-mode", "permit-mode", "predecessor-wait", "queue", "reader-mode"],
    ...["refused-join", "waiter"],
  ],
  hold: ["acquire", "hold", "reentrancy", "wait-for-turn", "with-lease"],
  locks: ["lock-all", "mutex", "rwlock", "semaphore"],
  election: ["election", "lead", "leader", "leadership"],
  "web-locks": ["arguments", "cluster-lock-manager", "snapshot"],
};
const MOST_FILES = 15;

const files = filesOf();
const imports = files.flatMap((file) => importsOf(file));
const inside = imports.filter(({ to }) => files.includes(to));
const arrow = ({ from, to }: { from: string; to: string }) => `${from} imports ${to}`;

const layerOf = (file: string) =>
  LAYERS.findIndex((names) => names.includes(file) || names.includes(`${folderOf(file)}/`));

describe("the layers of src/", () => {
  it("name every file, and no file or folder that is gone", () => {
    const unlisted = files.filter((file) => layerOf(file) === -1);
    const folders = files.map((file) => `${folderOf(file)}/`);
    const gone = LAYERS.flat().filter((name) => !files.includes(name) && !folders.includes(name));

    expect({ unlisted, gone }).toEqual({ unlisted: [], gone: [] });
  });

  it("are imported downwards only, types too, and folders of one layer do not meet", () => {
    const wrong = inside.filter(({ from, to }) =>
      folderOf(from) === folderOf(to) ? layerOf(to) > layerOf(from) : layerOf(to) >= layerOf(from),
    );

    expect(wrong.map(arrow)).toEqual([]);
  });

  it("have no cycle of files that load one another", () => {
    const loaded = inside.filter(({ isTypeOnly }) => !isTypeOnly);
    const edges = new Map(
      files.map((file) => [file, loaded.filter(({ from }) => from === file).map(({ to }) => to)]),
    );

    expect(findCycle(edges)).toBeUndefined();
  });

  it("load etcd3 in one file, and know cockatiel in three", () => {
    const users = (name: string) =>
      imports.filter(({ to, isTypeOnly }) => to === name && !isTypeOnly).map(({ from }) => from);

    expect(users("etcd3")).toEqual(["etcd/etcd3/member"]);
    expect(users("cockatiel")).toEqual(["etcd/backoff", "etcd/circuit-breakers", "etcd/etcd3/member"]);
  });

  it("import nothing but one another, Node's own modules and the two dependencies", () => {
    const foreign = imports.filter(
      ({ to }) => !files.includes(to) && !/^(node:.*|etcd3|cockatiel)$/.test(to),
    );

    expect(foreign.map(arrow)).toEqual([]);
  });
});

describe("a folder of src/", () => {
  const crossing = inside.filter(({ from, to }) => folderOf(to) !== "" && folderOf(from) !== folderOf(to));

  it("is entered by its front doors", () => {
    const around = crossing.filter(({ to }) => !doorsOf(folderOf(to)).includes(to));

    expect(around.map(arrow)).toEqual([]);
  });

  it("has no front door that no other folder uses", () => {
    const used = new Set(crossing.map(({ to }) => to));
    const unused = Object.keys(FRONT_DOORS).flatMap((folder) =>
      doorsOf(folder).filter((door) => !used.has(door)),
    );

    expect(unused).toEqual([]);
  });

  it(`has ${MOST_FILES} files at most`, () => {
    const count = (folder: string) => files.filter((file) => folderOf(file) === folder).length;
    const crowded = [...new Set(files.map(folderOf))].filter((folder) => count(folder) > MOST_FILES);

    expect(crowded).toEqual([]);
  });
});

const doorsOf = (folder: string) => (FRONT_DOORS[folder] ?? []).map((door) => `${folder}/${door}`);

describe("the search for cycles", () => {
  it("finds a cycle that does not contain the file where it starts", () => {
    const edges = new Map([
      ["a", ["b"]],
      ["b", ["c"]],
      ["c", ["b"]],
    ]);

    expect(findCycle(edges)).toEqual(["b", "c", "b"]);
  });
});
