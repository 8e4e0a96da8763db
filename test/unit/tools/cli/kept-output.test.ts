// What `run --keep-output` keeps of an output, and what a later call makes of that.
import { PassThrough, Writable } from "node:stream";
import { describe, expect, test } from "vitest";
import { EXIT } from "../../../../src/tools/cli/io.js";
import { OutputTail, replayOf, writeReplay } from "../../../../src/tools/cli/run/kept-output.js";

const LIMIT = 65_536;
const sizeOf = (value: unknown) => Buffer.byteLength(JSON.stringify(value));

/** Takes everything at once. */
function sink() {
  const chunks: Buffer[] = [];
  const to = new Writable({ write: (chunk: Buffer, _, done) => (chunks.push(chunk), done()) });
  return { to, written: () => Buffer.concat(chunks) };
}

/** What is kept of an output that comes in these chunks, and what has been written of it. */
async function keptOf(...chunks: (Buffer | string)[]) {
  const { to, written } = sink();
  const tail = new OutputTail(to);
  const from = new PassThrough();
  tail.follow(from);
  for (const chunk of chunks) from.write(chunk);
  from.end();
  await tail.end();
  const kept = tail.kept(3);
  expect(written().equals(Buffer.concat(chunks.map((chunk) => Buffer.from(chunk))))).toBe(true);
  return { kept, replay: replayOf(kept, true)! };
}

describe("the output of a command", () => {
  test.each(["", "one line\n", "ünï ☃ 🙂 \u0000\u001b[31m\u2028\ufeff", "\ufefffirst"])(
    "%j is kept whole",
    async (text) => {
      const { kept, replay } = await keptOf(text);

      expect(kept).toEqual({ exitCode: 3, output: text });
      expect(replay).toEqual({ exitCode: 3, bytes: Buffer.from(text), isCut: false });
    },
  );

  test.each([
    ["plain characters", "x", 1],
    ["characters that JSON escapes", "\n", 2],
    ["control characters", "\u0001", 6],
    ["characters of three bytes", "☃", 3],
    ["characters of two UTF-16 units", "🙂", 4],
  ])("of %s is kept whole as long as its JSON fits, and then its end", async (_, char, bytes) => {
    const room = LIMIT - sizeOf({ exitCode: 3, output: "" });
    const most = Math.floor(room / bytes);

    const fits = (await keptOf(char.repeat(most))).kept;
    expect(fits.output === char.repeat(most) && fits.cut === undefined).toBe(true);
    const { kept, replay } = await keptOf(`first${char.repeat(most)}`);
    expect(kept).toMatchObject({ exitCode: 3, cut: true });
    expect(kept.output).toMatch(new RegExp(`^${char}+$`, "u"));
    expect(replay.isCut).toBe(true);
    // One character more would not fit.
    expect(sizeOf(kept)).toBeLessThanOrEqual(LIMIT);
    expect(sizeOf(kept)).toBeGreaterThan(LIMIT - bytes);
  });

  test("is cut at a character, wherever its chunks are", async () => {
    const snow = Buffer.from("☃".repeat(40_000));
    const chunks = [0, 1, 2].map((n) => snow.subarray(n * 40_000, (n + 1) * 40_000));

    const { kept } = await keptOf(...chunks);

    expect(kept.output).toMatch(/^☃{21000,}$/u);
  });

  test("that is no UTF-8 is kept as bytes", async () => {
    const bytes = Buffer.alloc(300_000, Uint8Array.of(0xff, 0x00, 0x80));

    const short = await keptOf(bytes.subarray(0, 1000));
    expect(short.replay).toEqual({ exitCode: 3, bytes: bytes.subarray(0, 1000), isCut: false });
    const long = await keptOf(bytes.subarray(0, 150_000), bytes.subarray(150_000));
    expect(sizeOf(long.kept)).toBeLessThanOrEqual(LIMIT);
    expect(sizeOf(long.kept)).toBeGreaterThan(LIMIT - 4);
    expect(long.replay.isCut).toBe(true);
    expect(long.replay.bytes.equals(bytes.subarray(-long.replay.bytes.length))).toBe(true);
  });

  test("is kept when its reader has gone, and the command goes on", async () => {
    const gone = new Writable({
      write: (_chunk, _encoding, done) => done(Object.assign(new Error("gone"), { code: "EPIPE" })),
    });
    const tail = new OutputTail(gone);
    const from = new PassThrough({ highWaterMark: 10 });
    tail.follow(from);
    const lines = Array.from({ length: 50 }, (_, n) => `line ${n}\n`);
    // A command whose output nobody takes would stand still.
    for (const line of lines) await new Promise((done) => from.write(line, done));
    from.end();
    await tail.end();

    expect(tail.kept(0)).toEqual({ exitCode: 0, output: lines.join("") });
  });

  test("waits for a slow reader while the command runs, and no longer once its group is gone", async () => {
    const taken: (() => void)[] = [];
    const slow = new Writable({
      highWaterMark: 1,
      write: (_chunk, _encoding, done) => void taken.push(done),
    });
    const tail = new OutputTail(slow);
    const from = new PassThrough();
    tail.follow(from);
    from.write("first\n");
    await expect.poll(() => from.isPaused()).toBe(true);
    from.write("second\n");
    from.end("third\n");

    expect(tail.kept(0).output).toBe("first\n");
    await tail.end();

    expect(taken).toHaveLength(1);
    expect(tail.kept(0).output).toBe("first\nsecond\nthird\n");
  });
});

describe("a later call", () => {
  test.each([
    ["nothing", undefined, false],
    ["the result of a program", { id: "ch_1" }, false],
    ["a text", "output", false],
    ["null", null, false],
    ["no output", { exitCode: 0 }, false],
    ["an output that is no text", { exitCode: 0, output: 7 }, false],
    ["a code that is none", { exitCode: "0", output: "" }, false],
    ["a code that no program has", { exitCode: 256, output: "" }, true],
    ["a fraction of a code", { exitCode: 1.5, output: "" }, true],
    ["a failure of a slot that is done", { exitCode: 1, output: "" }, false],
    ["a success of a slot that has failed", { exitCode: 0, output: "" }, true],
  ])("replays nothing of %s", (_, result, failed) => expect(replayOf(result, failed)).toBeUndefined());

  const HOSTILE = { exitCode: 0, output: "a\tb\r\n\u001b[2Jc\u202e\u0007\rd\n" };

  test("writes the bytes as they were, and on a terminal no control character but lines and tabs", async () => {
    const [plain, terminal] = [sink(), sink()];
    const replay = replayOf(HOSTILE, false)!;

    expect(await writeReplay({ stdout: plain.to }, replay)).toBe(0);
    await writeReplay({ stdout: Object.assign(terminal.to, { isTTY: true }) }, replay);

    expect(plain.written().toString()).toBe(HOSTILE.output);
    expect(terminal.written().toString()).toBe("a\tb\r\n\\u001b[2Jc\\u202e\\u0007\\u000dd\n");
  });

  test.each([
    ["ENOSPC", EXIT.output],
    ["EPIPE", EXIT.signal + 13],
  ])("ends as other programs do if the output cannot be written: %s", async (code, exitCode) => {
    const stdout = new Writable({
      write: (_chunk, _encoding, done) => done(Object.assign(new Error(code), { code })),
    });
    stdout.on("error", () => {});

    expect(await writeReplay({ stdout }, replayOf({ exitCode: 5, output: "a" }, true)!)).toBe(exitCode);
  });
});
