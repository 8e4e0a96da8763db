// Any frames that a correct peer may send, in any order it may choose, in chunks of any size. LEASEHOLD_FUZZ is the number of
// connections.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FuzzTally } from "../../../support/fixtures/fuzz-tally.js";
import { OK, startPair, type End, type Pair } from "../../../support/fixtures/peer-calls.js";
import {
  answerFrames,
  CODES,
  FLAGS,
  frame,
  grpcMessage,
  headerBlock,
  pingFrame,
  RESPONSE,
  rstFrame,
  SETTINGS,
  settingsFrame,
  windowFrame,
} from "../../../support/servers/http2-peer.js";

const RUNS = Number(process.env["LEASEHOLD_FUZZ"] ?? 15);
const ROUNDS = 40;
const TIME_LIMIT_MS = 60_000 + RUNS * 300;
const SETTING = {
  numRuns: RUNS,
  // for one connection: a call has no end
  timeout: 20_000,
  // before the test ends without naming its seed
  interruptAfterTimeLimit: TIME_LIMIT_MS - 25_000,
  markInterruptAsFailure: true,
};
/** The first stream: it is over before the first round. */
const OVER = 1;
const tally = new FuzzTally(Math.ceil(RUNS / 50));

const bytes = (maxLength: number): fc.Arbitrary<Buffer> =>
  fc.uint8Array({ maxLength, size: "max" }).map((each) => Buffer.from(each));
const cuts = (maxLength: number): fc.Arbitrary<number[]> =>
  fc.array(fc.nat(2 ** 30), { maxLength, size: "max" });
const padding = fc.option(fc.nat(255), { nil: undefined, freq: 2 });

/** How the peer answers a call. */
const answer = fc.record({
  messages: fc.array(bytes(60), { maxLength: 3 }),
  dataCuts: cuts(5),
  padding,
  headerCuts: cuts(3),
  end: fc.oneof(
    {
      weight: 9,
      arbitrary: fc.record({ status: fc.nat(16), details: fc.string({ unit: "grapheme", maxLength: 12 }) }),
    },
    fc.record({ reset: fc.integer({ min: 1, max: 13 }) }),
  ),
});
type Answer = typeof answer extends fc.Arbitrary<infer T> ? T : never;

const setting = fc.oneof(
  fc.tuple(fc.constant(SETTINGS.INITIAL_WINDOW_SIZE), fc.integer({ min: 10_000, max: 100_000 })),
  fc.tuple(fc.constant(SETTINGS.MAX_FRAME_SIZE), fc.integer({ min: 16_384, max: 2 ** 24 - 1 })),
  // Fewer bytes than the headers of a request would forbid all calls.
  fc.tuple(fc.constant(SETTINGS.MAX_HEADER_LIST_SIZE), fc.integer({ min: 10_000, max: 2 ** 32 - 1 })),
  fc.tuple(fc.integer({ min: 7, max: 65_535 }), fc.nat(2 ** 32 - 1)),
);
/** Frames that change no call. */
const aside: fc.Arbitrary<Buffer> = fc.oneof(
  fc.array(setting, { maxLength: 3 }).map(settingsFrame),
  fc.constant(pingFrame()),
  fc.constant(frame("PING", 0, { flags: FLAGS.ACK, payload: Buffer.alloc(8) })),
  fc
    .tuple(fc.constantFrom(0, OVER), fc.integer({ min: 1, max: 1000 }))
    .map(([id, size]) => windowFrame(id, size)),
  fc.nat(13).map((code) => rstFrame(OVER, code)),
  fc.nat(1000).map((id) => frame("PRIORITY", id * 2 + 1, { payload: Buffer.alloc(5, 1) })),
  fc
    .tuple(fc.nat(1000), fc.nat(255), bytes(50))
    .map(([id, flags, payload]) => frame("UNKNOWN", id, { flags, payload })),
);

const round = fc.record({
  answers: fc.array(answer, { minLength: 1, maxLength: 8, size: "max" }),
  asides: fc.array(aside, { maxLength: 8, size: "max" }),
  order: fc.array(fc.nat(100), { minLength: 1, maxLength: 30, size: "max" }),
  chunkCuts: cuts(8),
});
type Round = typeof round extends fc.Arbitrary<infer T> ? T : never;

const sorted = (positions: readonly number[], length: number): number[] =>
  [...new Set(positions.map((at) => at % length))].filter((at) => at > 0).sort((a, b) => a - b);

/** Cut at the positions, which may be beyond the end. */
function pieces(whole: Buffer, positions: readonly number[]): Buffer[] {
  const ends = [...sorted(positions, whole.length), whole.length];
  return ends.map((end, n) => whole.subarray(ends[n - 1] ?? 0, end));
}

function padded(content: Buffer, length: number | undefined): { payload: Buffer; flags: number } {
  if (length === undefined) return { payload: content, flags: FLAGS.NONE };
  const payload = Buffer.concat([Buffer.of(length), content, Buffer.alloc(length)]);
  return { payload, flags: FLAGS.PADDED };
}

/** HEADERS and CONTINUATION: nothing may come between them. */
function blockOf(id: number, block: Buffer, { headerCuts, padding, endStream }: BlockSetting): Buffer[] {
  const parts = pieces(block, headerCuts);
  return parts.map((part, n) => {
    const last = n === parts.length - 1 ? FLAGS.END_HEADERS : 0;
    if (n > 0) return frame("CONTINUATION", id, { flags: last, payload: part });
    const { payload, flags } = padded(part, padding);
    return frame("HEADERS", id, { flags: flags | last | (endStream ? FLAGS.END_STREAM : 0), payload });
  });
}

interface BlockSetting {
  readonly headerCuts: readonly number[];
  readonly padding: number | undefined;
  readonly endStream: boolean;
}

/** Frames in groups that nothing may come between. */
function groupsOf(id: number, { messages, dataCuts, end, ...how }: Answer): Buffer[][] {
  const data = Buffer.concat(messages.map(grpcMessage));
  const last =
    "reset" in end
      ? [rstFrame(id, end.reset)]
      : blockOf(id, headerBlock(trailersOf(end)), { ...how, endStream: true });
  return [
    blockOf(id, headerBlock(RESPONSE), { ...how, endStream: false }),
    ...(data.length > 0 ? pieces(data, dataCuts) : []).map((each) => [
      frame("DATA", id, padded(each, how.padding)),
    ]),
    last,
  ];
}

const trailersOf = ({ status, details }: { readonly status: number; readonly details: string }) =>
  [
    ["grpc-status", `${status}`],
    ["grpc-message", encodeURIComponent(details)],
  ] as const;

/** Takes the next group of any stream, again and again. */
function interleaved(streams: readonly Buffer[][][], order: readonly number[]): Buffer[] {
  const sent: Buffer[] = [];
  let left = streams.map((groups) => [...groups]).filter(({ length }) => length > 0);
  for (let n = 0; left.length > 0; n++) {
    sent.push(...left[order[n % order.length]! % left.length]!.shift()!);
    left = left.filter(({ length }) => length > 0);
  }
  return sent;
}

function expectedEnd(end: Answer["end"]): unknown {
  if (!("reset" in end)) return end.status === 0 ? OK : end;
  const failed = end.reset === CODES.ENHANCE_YOUR_CALM ? "calm" : "reset";
  return expect.objectContaining({ failed, inDoubt: end.reset !== CODES.REFUSED_STREAM });
}

/** Makes calls, answers them, and returns how they ended. */
async function play(pair: Pair, { answers, asides, order, chunkCuts }: Round) {
  const calls = answers.map(() => pair.client.call());
  tally.add({ calls: calls.length });
  const ids = await pair.connection.requests(calls.length);
  const streams = answers.map((each, n) => groupsOf(ids[n]!, each));
  const frames = interleaved([...streams, asides.map((each) => [each])], order);
  const sent = Buffer.concat(frames);
  const positions = sorted(chunkCuts, sent.length);
  await pair.connection.sendSplit(sent, positions);
  const ends: End[] = [];
  for (const call of calls) ends.push(await call.end);
  tally.add({ frames: frames.length, splittings: positions.length > 0 ? 1 : 0, over: ends.length });
  return calls.map(({ messages }, n) => ({ messages, end: ends[n] }));
}

describe("random frames of a correct peer, split anywhere", () => {
  test(
    `end every call with the messages and the status that were sent: ${RUNS} connections`,
    async () => {
      await fc.assert(
        fc.asyncProperty(
          fc.array(round, { minLength: 1, maxLength: ROUNDS, size: "max" }),
          async (rounds) => {
            tally.input();
            await using pair = await startPair();
            tally.add({ connections: 1 });
            pair.connection.send(answerFrames(pair.id, "first"));
            await pair.first.end;
            for (const each of rounds) {
              const ended = await play(pair, each);
              expect(ended).toEqual(
                each.answers.map(({ messages, end }) => ({ messages, end: expectedEnd(end) })),
              );
              // The answers to pings leave late.
              pair.client.clock.advance(150);
            }
            expect(pair.peer.connections).toHaveLength(1);
            expect(pair.connection.all("GOAWAY")).toEqual([]);
          },
        ),
        SETTING,
      );
    },
    TIME_LIMIT_MS,
  );
});
