// The commands that look at groups: `members`, and `shards`, which also says who owns what. They read only, by one watch, and need no
// session. A group without members is exit code 1. With --watch they print the group again after a change, go on through outages of etcd,
// and end only on a signal, an error, or when the reader of their output has gone. Ids, values and zones are what the members have said of
// themselves: tables escape them, and JSON keeps them as they are.
import { type Cluster, type Member, members as membersOf } from "../../index.js";
import { systemClock, pause } from "../../base/util/clock.js";
import { checkName } from "../../base/options/check.js";
import { servicesOf } from "../../lock/session/cluster.js";
import { ask } from "../../observe/inspect.js";
import { Feed } from "../../observe/queue-watch.js";
import { type ShardEntry, type ShardMember, ShardView } from "../../recipes/shards/view.js";
import { printable } from "../../base/util/printable.js";
import { type Call, command, type Flags } from "./command.js";
import { columnsOf, EXIT, json, leaseJson, type Output, ownerText, tableFor, wrap, write } from "./io.js";
import type { MemberJson, MembersJson, MoveJson, ShardMemberJson, ShardsJson } from "./json-types.js";

const NONE = "-";
/** A move of hundreds of shards is hundreds of changes. */
const GAP_MS = 200;

const FLAGS = {
  watch: { text: "print again after each change, five times a second at most, until a signal" },
} as const satisfies Flags;

/** What a command prints of each state. */
interface Printer<S> {
  readonly name: string;
  readonly states: AsyncIterableIterator<S>;
  /** The object of a line of JSON. */
  readonly jsonOf: (state: S) => { readonly members: readonly unknown[] };
  readonly textOf: (state: S, stdout: Output) => string;
}

async function print<S>(
  { io, flags, json: wantsJson, signal }: Call<typeof FLAGS>,
  cluster: Cluster,
  { name, states, jsonOf, textOf }: Printer<S>,
): Promise<number> {
  const question = { what: `read the group "${name}"`, wait: { signal, timeoutMs: undefined } };
  let last = "";
  try {
    let next = await ask(cluster, question, () => states.next());
    for (; !next.done; next = await states.next()) {
      const document = jsonOf(next.value);
      const isEmpty = document.members.length === 0;
      const none = `${JSON.stringify(name)} has no members\n`;
      const text = wantsJson ? json(document) : isEmpty ? none : textOf(next.value, io.stdout);
      if (!flags.watch) {
        if (isEmpty && !wantsJson) io.stderr.write(`leasehold: ${text}`);
        else await write(io, text);
        return isEmpty ? EXIT.nothing : EXIT.ok;
      }
      if (text !== last) await write(io, wantsJson || last === "" ? text : `\n${text}`);
      last = text;
      await pause(systemClock, GAP_MS, signal);
    }
    return EXIT.ok;
  } finally {
    void states.return?.();
  }
}

const memberJson = (member: Member): MemberJson => {
  const { id, value, owner, capacity, zone, state, key, revision, leaseId } = member;
  return {
    ...{ id, value, owner, capacity, ...(zone !== undefined && { zone }), state, key },
    ...{ revision: revision.toString(), ...leaseJson(leaseId) },
  };
};

export const members = command({
  name: "members",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "list the members of a group",
  help: [
    "Lists who is in this group, in the order of their joins: id, value, state, the owner of the session, and the revision at which it has joined.",
    "Exit code 1: there is nobody.",
  ],
  flags: FLAGS,
  run: (call) => {
    const { connect, signal, positionals } = call;
    const [name = ""] = positionals;
    const cluster = connect();
    return print(call, cluster, {
      name,
      states: membersOf(cluster, name, { signal }),
      jsonOf: ({ members, revision }) =>
        ({ name, members: members.map(memberJson), revision: revision.toString() }) satisfies MembersJson,
      textOf: ({ members }, stdout) =>
        tableFor(["MEMBER", "VALUE", "STATE", "OWNER", "JOINED"], stdout).add(
          members.map(({ id, value, state, owner, revision }) => [id, value, state, owner, `${revision}`]),
        ),
    });
  },
});

/** The view itself at each of its changes: who is slow to read it misses states, and nothing is computed for these. */
function viewsOf(cluster: Cluster, name: string, signal: AbortSignal): AsyncIterableIterator<ShardView> {
  const services = servicesOf(cluster);
  return new Feed<ShardView>({
    ...{ services, signal, maxUnread: 1, same: () => false },
    start: ({ item, failed }) => {
      const view = new ShardView(services, name, failed);
      view.listen(() => item(view));
      view.ready.catch((error: unknown) => failed(error as Error));
      return view;
    },
  });
}

/** A shard that somebody else should have, or that nobody has. */
interface Move {
  readonly shard: number;
  /** Has the lock; undefined: nobody. */
  readonly from: ShardEntry | undefined;
  readonly to: ShardEntry | Member | undefined;
  readonly state: MoveJson["state"];
}

function movesIn(view: ShardView): Move[] {
  const { claimants, targets } = view.plan;
  const moves: Move[] = [];
  for (const [shard, target] of targets.entries()) {
    const [first, ...others] = view.queue(shard).filter(({ isDelay }) => !isDelay);
    const isOwned = view.owner(shard) !== undefined;
    const waiter = isOwned ? others[0] : first;
    const from = isOwned ? first : undefined;
    const planned = claimants[target]?.member;
    const to = waiter ?? planned;
    if (!from) moves.push({ shard, from, to, state: "free" });
    else if (to && to.leaseId !== from.leaseId)
      moves.push({ shard, from, to, state: waiter ? "waiting" : "planned" });
  }
  return moves;
}

/** A member, and what it owns. */
interface Part extends ShardMember {
  /** By its capacity; 0: it takes nothing. */
  readonly share: number;
  readonly owned: readonly number[];
}

function partsOf(view: ShardView): readonly Part[] {
  const { count = 0, plan } = view;
  const owned = new Map<bigint, number[]>();
  for (let shard = 0; shard < count; shard++) {
    const { leaseId } = view.owner(shard) ?? {};
    if (leaseId === undefined) continue;
    const own = owned.get(leaseId);
    if (own) own.push(shard);
    else owned.set(leaseId, [shard]);
  }
  const takes = new Set(plan.claimants.map(({ member }) => member.leaseId));
  const whole = plan.claimants.reduce((sum, { member }) => sum + member.capacity, 0);
  return view.members.map((part) => {
    const { leaseId, capacity } = part.member;
    const share = takes.has(leaseId) ? (count * capacity) / whole : 0;
    return { ...part, share, owned: owned.get(leaseId) ?? [] };
  });
}

const rounded = (share: number): number => Number(share.toFixed(2));

/** Of those that take shards: how far the members are above and below their shares. */
function balanceOf(parts: readonly Part[]): ShardsJson["balance"] {
  const offs = parts.filter(({ share }) => share > 0).map(({ owned, share }) => owned.length - share);
  return offs.length === 0 ? null : { most: rounded(Math.max(...offs)), least: rounded(Math.min(...offs)) };
}

/** `0-3,7`. */
function rangesOf(shards: readonly number[]): string {
  const ranges: [first: number, last: number][] = [];
  for (const shard of shards) {
    const range = ranges.at(-1);
    if (range?.[1] === shard - 1) range[1] = shard;
    else ranges.push([shard, shard]);
  }
  return ranges.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

function shardsJson(view: ShardView): ShardsJson {
  const parts = partsOf(view);
  const idOf = (of: Move["to"]): string | null =>
    of === undefined ? null : (view.memberOf(of.leaseId)?.member.id ?? null);
  return {
    name: view.name,
    count: view.count ?? 0,
    members: parts.map(({ member, share, owned, count, declines }): ShardMemberJson => ({
      ...memberJson(member),
      ...{ count, declines, share: rounded(share), shards: owned },
    })),
    balance: balanceOf(parts),
    moves: movesIn(view).map(({ shard, from, to, state }) => ({
      ...{ shard, state, from: idOf(from), to: idOf(to) },
      ...(from && { fence: from.createRevision.toString() }),
    })),
    revision: view.revision.toString(),
  };
}

function shardsText(view: ShardView, stdout: Output): string {
  const parts = partsOf(view);
  const moves = movesIn(view);
  const { count = 0 } = view;
  const hasZones = parts.some(({ member }) => member.zone !== undefined);
  const table = tableFor(
    ["MEMBER", "VALUE", ...(hasZones ? ["ZONE"] : []), "CAPACITY", "STATE", "SHARE", "OWNED", "SHARDS"],
    stdout,
  );
  const rows = parts.map(({ member, share, owned, ...part }) => [
    ...[member.id, member.value, ...(hasZones ? [member.zone ?? NONE] : []), `${member.capacity}`],
    ...[stateOf(member, part, count), share.toFixed(1), `${owned.length}`, rangesOf(owned) || NONE],
  ]);
  const room = stdout.isTTY ? columnsOf(stdout) : Infinity;
  const title = wrap(titleOf(view, parts, moves), room, "  ").map((line) => `${line}\n`);
  return [...title, table.add(rows), movesText(view, moves, stdout)].join("");
}

function stateOf({ state }: Member, { count, declines }: Omit<ShardMember, "member">, all: number): string {
  const notes = [
    ...(count === all ? [] : [`${count} shards`]),
    ...(declines.length === 0 ? [] : [`declines ${declines.length}`]),
  ];
  return [state, ...notes].join(", ");
}

function titleOf({ name, count = 0 }: ShardView, parts: readonly Part[], moves: readonly Move[]): string {
  const free = moves.filter(({ state }) => state === "free").length;
  const balance = balanceOf(parts);
  const sign = (off: number): string => `${off < 0 ? "" : "+"}${off.toFixed(1)}`;
  return [
    printable(name, Infinity),
    `${count} shard${count === 1 ? "" : "s"}`,
    `${parts.length} member${parts.length === 1 ? "" : "s"}`,
    `${count - free} owned, ${free} free, ${moves.length - free} moving`,
    balance ? `balance ${sign(balance.least)} to ${sign(balance.most)}` : "no member takes any",
  ].join("  ");
}

/** Those that are alike on one line. */
function movesText(view: ShardView, moves: readonly Move[], stdout: Output): string {
  const textOf = (of: Move["to"]): string =>
    of === undefined
      ? NONE
      : (view.memberOf(of.leaseId)?.member.id ?? ownerText({ ...of, value: undefined }));
  const rows = new Map<string, { readonly cells: readonly string[]; readonly shards: number[] }>();
  for (const { shard, from, to, state } of moves) {
    const key = `${state} ${from?.leaseId} ${to?.leaseId}`;
    const row = rows.get(key) ?? { cells: [state, textOf(from), textOf(to)], shards: [] };
    row.shards.push(shard);
    rows.set(key, row);
  }
  const cells = [...rows.values()].map((row) => [...row.cells, rangesOf(row.shards)]);
  return tableFor(["MOVE", "FROM", "TO", "SHARDS"], stdout).add(cells);
}

export const shards = command({
  name: "shards",
  args: "NAME",
  positionals: [1, 1],
  endsWithOutput: true,
  summary: "show who owns which shard of a group, and what moves",
  help: [
    "Shows the members of a group that shares out its shards, in the order of their joins: SHARE is what the capacity gives it, OWNED how many it has, SHARDS which " +
      "ones. Balance: how far the members are below and above their shares.",
    "Then what moves. waiting: TO stands in the queue, and gets the shard as soon as the work of FROM has settled. planned: the rule names TO, which is not in the queue yet. " +
      "free: nobody owns it.",
    "STATE: a joining member has no share before it has settled, a draining one none. declines 3: its work on three shards has failed, so it leaves them to " +
      "others for a minute. 32 shards: it has another number of shards than the group, and owns none.",
    "leasehold show NAME/shard/7 shows the queue of a shard. Exit code 1: the group has no members.",
  ],
  flags: FLAGS,
  run: (call) => {
    const { connect, signal, positionals } = call;
    const [name = ""] = positionals;
    checkName(name);
    const cluster = connect();
    return print(call, cluster, {
      name,
      states: viewsOf(cluster, name, signal),
      jsonOf: shardsJson,
      textOf: shardsText,
    });
  },
});
