// Any frames, and bytes that are none, from a peer that obeys no rule. LEASEHOLD_FUZZ is the number of connections.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  answerFrames,
  dataFrame,
  FLAGS,
  frame,
  framesIn,
  goawayFrame,
  grpcMessage,
  headersFrame,
  pingFrame,
  RESPONSE,
  responseFrame,
  rstFrame,
  settingsFrame,
  trailersFrame,
  TYPES,
  windowFrame,
  type TypeName,
} from "../../../support/servers/http2-peer.js";
import { settle } from "../../../support/fakes/fake-clock.js";
import { FuzzTally } from "../../../support/fixtures/fuzz-tally.js";
import { startPair, type Pair, type RecordedCall } from "../../../support/fixtures/peer-calls.js";

const RUNS = Number(process.env["LEASEHOLD_FUZZ"] ?? 300);
const tally = new FuzzTally(Math.ceil(RUNS / 50));

const id = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(1, 3, 5, 7) },
  fc.constantFrom(0, 2, 9, 2 ** 31 - 1),
);
const bytes = (maxLength: number): fc.Arbitrary<Buffer> =>
  fc.uint8Array({ maxLength }).map((each) => Buffer.from(each));
const number32 = fc.oneof(fc.nat(200), fc.constantFrom(65_535, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1));
const text = fc.constantFrom("", "a", "answer", "%", "%C3%A9", "0", "200");

/** What a peer may send, or almost. */
const orderly: fc.Arbitrary<Buffer> = fc.oneof(
  { weight: 4, arbitrary: id.map((on) => answerFrames(on, "answer")) },
  { weight: 4, arbitrary: id.map((on) => responseFrame(on)) },
  { weight: 3, arbitrary: fc.tuple(id, text).map(([on, each]) => dataFrame(on, grpcMessage(each))) },
  {
    weight: 3,
    arbitrary: fc
      .tuple(id, fc.constantFrom("0", "5", "14", "x"))
      .map(([on, status]) => trailersFrame(on, status)),
  },
  fc.tuple(id, bytes(30), fc.boolean()).map(([on, each, endStream]) => dataFrame(on, each, { endStream })),
  fc
    .tuple(
      id,
      fc.constantFrom("grpc-status", "grpc-message", ":status", "content-type", "grpc-encoding"),
      text,
      fc.boolean(),
    )
    .map(([on, name, value, endStream]) => headersFrame(on, [...RESPONSE, [name, value]], { endStream })),
  fc.tuple(id, fc.nat(15)).map(([on, code]) => rstFrame(on, code)),
  fc.tuple(id, number32).map(([on, size]) => windowFrame(on, size)),
  fc.tuple(fc.nat(8), number32).map(([setting, value]) => settingsFrame([[setting, value]])),
  fc.tuple(id, fc.nat(15)).map(([last, code]) => goawayFrame(last, code, "bye")),
  fc.constant(pingFrame()),
);

const types = fc.constantFrom(...(Object.keys(TYPES) as TypeName[]));
const flags = fc.oneof(
  fc.constantFrom(FLAGS.NONE, FLAGS.END_HEADERS, FLAGS.PADDED | FLAGS.END_HEADERS),
  fc.nat(255),
);
/** Any frame with any content, and bytes that are no frame. */
const disorderly: fc.Arbitrary<Buffer> = fc.oneof(
  fc
    .tuple(types, id, flags, bytes(40))
    .map(([type, on, flag, payload]) => frame(type, on, { flags: flag, payload })),
  fc
    .tuple(types, id, fc.nat(20_000))
    .map(([type, on, length]) => frame(type, on, { flags: FLAGS.END_HEADERS, length })),
  bytes(20),
);

const script = fc.array(
  fc.tuple(
    fc.oneof({ weight: 12, arbitrary: orderly }, { weight: 1, arbitrary: disorderly }),
    fc.array(fc.nat(60), { maxLength: 3 }),
    fc.constantFrom("", "", "", "call", "cancel", "write", "advance"),
  ),
  { minLength: 1, maxLength: 12 },
);

/** First `sent`, again if the call went to another connection; nothing after the end. */
function isOrderly({ told }: RecordedCall): boolean {
  const end = told.findIndex((name) => name === "ended" || name === "failed");
  const sent = told.lastIndexOf("sent");
  const others = told.findIndex((name) => name !== "sent");
  return (end < 0 || end === told.length - 1) && (others < 0 || sent < others);
}

/** The client has not ended the connection: it reads what is sent. */
const isRead = ({ connection }: Pair): boolean =>
  connection.socket.writable && connection.all("GOAWAY").length === 0;

describe("random frames of a peer, split anywhere", () => {
  test(
    `crash nothing, and leave no call without an end: ${RUNS} connections`,
    async () => {
      await fc.assert(
        fc.asyncProperty(script, async (steps) => {
          tally.input();
          await using pair = await startPair();
          tally.add({ connections: 1 });
          const stream = pair.client.stream();
          const calls = [pair.first, stream, pair.client.call(Buffer.alloc(70_000)), pair.client.call()];
          const cancelled = new Set<RecordedCall>();
          for (const [n, [sent, positions, action]] of steps.entries()) {
            const cuts = [...new Set(positions)].filter((at) => at < sent.length).sort((a, b) => a - b);
            if (isRead(pair)) tally.add({ frames: framesIn(sent), splittings: cuts.length > 0 ? 1 : 0 });
            if (pair.connection.socket.writable) await pair.connection.sendSplit(sent, cuts);
            if (action === "call") calls.push(pair.client.call());
            if (action === "write") stream.write(grpcMessage("more"));
            if (action === "advance") pair.client.clock.advance(3000);
            const victim = calls[n % calls.length]!;
            if (action !== "cancel" || victim.isOver) continue;
            victim.cancel();
            cancelled.add(victim);
          }
          tally.add({ calls: calls.length, over: cancelled.size });
          pair.client.channel.retire();
          for (const connection of pair.peer.connections) connection.reset();
          // Calls that went to a further connection, which was not greeted, end with its time limit.
          for (let n = 0; n < 5 && calls.some((call) => !call.isOver && !cancelled.has(call)); n++) {
            await settle();
            pair.client.clock.advance(4100);
          }
          for (const call of calls) {
            if (cancelled.has(call)) continue;
            await call.end;
            tally.add({ over: 1 });
          }
          expect(calls.filter((call) => !isOrderly(call)).map(({ told }) => told)).toEqual([]);
          expect([...cancelled].filter((call) => call.isOver)).toEqual([]);
        }),
        { numRuns: RUNS },
      );
    },
    20_000 + RUNS * 50,
  );
});
