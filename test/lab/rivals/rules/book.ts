// An ordered record of a run: requests, holds, claims, and faults with their times.
import type { Ask, Effect, Fault, Granted, Line, Refused } from "../line.js";

export interface Span {
  readonly from: bigint;
  readonly to: bigint;
}
export interface Hold {
  readonly p: string;
  readonly id: number;
  readonly name: string;
  readonly token?: bigint;
  readonly asked: bigint;
  readonly granted: bigint;
  readonly claims: readonly { readonly t: bigint; readonly held: boolean }[];
  /** When the subject reported the loss by itself. */
  readonly told: readonly bigint[];
  readonly release?: bigint;
  readonly released?: bigint;
  /** When it was over for its holder: released, reported as lost, or the process ended. */
  readonly over: bigint;
  /** When it claimed to hold, without the time in which the process was stopped. */
  readonly spans: readonly Span[];
}
export interface Wait extends Ask {
  readonly granted?: bigint;
  readonly refused?: Refused;
  readonly over: bigint;
}
export interface Trouble extends Span {
  readonly fault: string;
  readonly effect: Effect;
  readonly hits: Fault["hits"];
}
export interface Book {
  readonly lines: readonly Line[];
  readonly holds: readonly Hold[];
  readonly waits: readonly Wait[];
  readonly troubles: readonly Trouble[];
  readonly ttl: bigint;
  readonly queues: boolean;
}

export const NS_PER_MS = 1_000_000n;
const FOREVER = 2n ** 62n;

export function bookOf(
  unordered: readonly Line[],
  { ttlMs, queues }: { ttlMs: number; queues: boolean },
): Book {
  const lines = [...unordered].sort((a, b) => Number(a.t - b.t));
  const troubles = troublesOf(lines);
  const asks = new Map<number, Ask>();
  for (const line of lines) if (line.k === "ask") asks.set(line.id, line);
  const granted = lines.filter((line): line is Granted => line.k === "granted");
  const holds = granted.map((grant) => holdOf(grant, asks.get(grant.id)?.t ?? grant.t, lines, troubles));
  const waits = [...asks.values()].map((ask) => waitOf(ask, lines));
  return { lines, holds, waits, troubles, ttl: BigInt(ttlMs) * NS_PER_MS, queues };
}

/** Faults that hit the process in that time. */
export function troubled(book: Book, p: string, { from, to }: Span, effects: readonly Effect[]): boolean {
  return book.troubles.some(
    (it) =>
      effects.includes(it.effect) &&
      it.from <= to &&
      it.to >= from &&
      (it.hits === "all" || it.hits.includes(p)),
  );
}

/** Its `close` was called before that moment. */
export function closing({ lines }: Book, p: string, before: bigint): boolean {
  return lines.some((line) => line.k === "close" && line.p === p && line.t < before);
}

/** What is left of a span after others are removed. */
export function without(span: Span, cuts: readonly Span[]): Span[] {
  let rest = [span];
  for (const cut of cuts)
    rest = rest.flatMap(({ from, to }) => {
      if (cut.to < from || cut.from > to) return [{ from, to }];
      const before = from < cut.from ? [{ from, to: cut.from }] : [];
      return cut.to < to ? [...before, { from: cut.to, to }] : before;
    });
  return rest;
}

/** Excludes the time in which the process was stopped. */
export function running(book: Book, p: string, span: Span): bigint {
  return lengthOf(without(span, pausesOf(book.troubles, p)));
}

export const lengthOf = (spans: readonly Span[]) => spans.reduce((sum, { from, to }) => sum + to - from, 0n);

function pausesOf(troubles: readonly Trouble[], p: string): Trouble[] {
  return troubles.filter(({ effect, hits }) => effect === "stops" && hits.includes(p));
}

function troublesOf(lines: readonly Line[]): Trouble[] {
  const faults = lines.filter((line): line is Fault => line.k === "fault");
  return faults.flatMap(({ on, fault, effect, hits, t }, at) => {
    if (!on) return [];
    const same = (it: Fault) => !it.on && it.fault === fault && String(it.hits) === String(hits);
    return [{ fault, effect, hits, from: t, to: faults.slice(at).find(same)?.t ?? FOREVER }];
  });
}

/** When the process was killed, or ended by itself. */
function goneAt(lines: readonly Line[], p: string): bigint {
  const gone = lines.find(
    (line) =>
      (line.k === "crash" && line.p === p) ||
      (line.k === "fault" && line.effect === "kills" && line.hits.includes(p)),
  );
  return gone?.t ?? FOREVER;
}

function waitOf(ask: Ask, lines: readonly Line[]): Wait {
  const granted = lines.find((line) => line.k === "granted" && line.id === ask.id)?.t;
  const refused = lines.find((line): line is Refused => line.k === "refused" && line.id === ask.id);
  const end = earliest(granted, refused?.t, goneAt(lines, ask.p), lines.at(-1)?.t);
  const over = end > ask.t ? end : ask.t;
  return { ...ask, over, ...(granted !== undefined && { granted }), ...(refused && { refused }) };
}

function holdOf(grant: Granted, asked: bigint, lines: readonly Line[], troubles: readonly Trouble[]): Hold {
  const { p, id, name, token, t: granted } = grant;
  const mine = lines.filter((line) => "id" in line && line.id === id);
  const claims = mine.flatMap((line) => (line.k === "claim" ? [line] : []));
  const told = mine.flatMap(({ k, t }) => (k === "lost" ? [t] : []));
  const release = mine.find(({ k }) => k === "release")?.t;
  const released = mine.find(({ k }) => k === "released")?.t;
  const denied = claims.find(({ held }) => !held)?.t;
  const over = earliest(release, told[0], denied, goneAt(lines, p), lines.at(-1)?.t);
  const claimed = { granted, release, told: told[0], claims };
  const spans = spansOf(claimed).flatMap((span) => without(span, pausesOf(troubles, p)));
  return {
    ...{ p, id, name, asked, granted, claims, told, over, spans },
    ...(token !== undefined && { token }),
    ...(release !== undefined && { release }),
    ...(released !== undefined && { released }),
  };
}

interface Claimed {
  readonly granted: bigint;
  readonly release: bigint | undefined;
  readonly claims: Hold["claims"];
}

/**
 * From the grant, or the first claim after a denied one, to the last of a series; claims after the release do not
 * count.
 */
function spansOf({ granted, release, claims }: Claimed): Span[] {
  const spans: Span[] = [];
  let open: { from: bigint; to: bigint } | undefined = { from: granted, to: granted };
  for (const { t, held } of claims) {
    if (release !== undefined && t > release) break;
    if (held) open = { from: open?.from ?? t, to: t };
    else if (open !== undefined) spans.push(open);
    if (!held) open = undefined;
  }
  return open === undefined ? spans : [...spans, open];
}

function earliest(...times: readonly (bigint | undefined)[]): bigint {
  return times.reduce<bigint>((least, t) => (t !== undefined && t < least ? t : least), FOREVER);
}
