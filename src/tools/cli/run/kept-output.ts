// What `run --once KEY --keep-output` keeps of a command: the end of its standard output, and its exit code.
// - The output goes to that of this program as it comes, byte by byte. A slow reader slows the command down; one that has gone does not end
//   it, as the output is kept.
// - A replay writes the same bytes. On a terminal, control characters are escaped: another client may have written them.
import { isUtf8 } from "node:buffer";
import os from "node:os";
import type { Readable } from "node:stream";
import { pause, systemClock } from "../../../base/util/clock.js";
import { printable } from "../../../base/util/printable.js";
import { MAX_RESULT } from "../../../recipes/once/marks.js";
import { EXIT, type Io, type Output } from "../io.js";

/** The result that is kept. */
export interface KeptOutput {
  readonly exitCode: number;
  /** One of the two: text, or bytes that are no UTF-8. */
  readonly output?: string;
  readonly base64?: string;
  /** The command has written more before. */
  readonly cut?: true;
}

/** A process that has left the group may keep the output open. */
const REST_MS = 1000;

/** The end of what a command writes on standard output, which still goes to that of this program. */
export class OutputTail {
  readonly #chunks: Buffer[] = [];
  #bytes = 0;
  #isCut = false;
  /** The group is gone: what is left fits into a pipe, and waits for no reader. */
  #isLast = false;
  #hasReader = true;
  #from: Readable | undefined;

  constructor(private readonly to: Output) {}

  follow(from: Readable): void {
    const { to } = this;
    this.#from = from;
    from.on("error", () => {});
    from.on("data", (chunk: Buffer) => {
      this.#add(chunk);
      if (this.#hasReader && !to.write(chunk) && !this.#isLast) from.pause();
    });
    to.on("drain", () => from.resume());
    to.on("error", () => {
      this.#hasReader = false;
      from.resume();
    });
  }

  /** Reads what is left of the output of a command whose process group is gone. */
  async end(): Promise<void> {
    const from = this.#from;
    if (!from || from.closed) return;
    this.#isLast = true;
    const over = new AbortController();
    from.once("close", () => over.abort());
    from.resume();
    await pause(systemClock, REST_MS, over.signal).catch(() => undefined);
    from.destroy();
  }

  #add(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
    for (let first = this.#chunks[0]; first && this.#bytes - first.length >= MAX_RESULT;) {
      this.#bytes -= first.length;
      this.#isCut = true;
      this.#chunks.shift();
      first = this.#chunks[0];
    }
  }

  /** The result of the command: its JSON has at most as many bytes as `once` keeps. */
  kept(exitCode: number): KeptOutput {
    const bytes = Buffer.concat(this.#chunks);
    const whole = this.#isCut ? fromCharacter(bytes) : bytes;
    if (!isUtf8(whole)) return this.#fitted(exitCode, "base64", (room) => base64Tail(bytes, room));
    return this.#fitted(exitCode, "output", (room) => textTail(whole.toString(), room));
  }

  /** `tail`: the longest one whose JSON, without the quotes, has so many bytes. */
  #fitted(exitCode: number, field: "output" | "base64", tail: (room: number) => string): KeptOutput {
    const all: KeptOutput = { exitCode, [field]: tail(Infinity) };
    if (!this.#isCut && sizeOf(all) <= MAX_RESULT) return all;
    const empty = { exitCode, [field]: "", cut: true } as const;
    return { ...empty, [field]: tail(MAX_RESULT - sizeOf(empty)) };
  }
}

const sizeOf = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));

/** Without the rest of a character at the begin. */
function fromCharacter(bytes: Buffer): Buffer {
  const first = bytes.findIndex((byte) => (byte & 0xc0) !== 0x80);
  return bytes.subarray(Math.max(0, Math.min(first, 3)));
}

function textTail(text: string, room: number): string {
  if (room === Infinity) return text;
  let start = text.length;
  for (let left = room; start > 0;) {
    const isPair = /[\udc00-\udfff]/.test(text.charAt(start - 1));
    const next = start - (isPair ? 2 : 1);
    left -= sizeOf(text.slice(next, start)) - 2;
    if (left < 0) break;
    start = next;
  }
  return text.slice(start);
}

function base64Tail(bytes: Buffer, room: number): string {
  const count = Math.min(bytes.length, Math.floor(room / 4) * 3);
  return bytes.subarray(bytes.length - count).toString("base64");
}

/** An output that was kept, as a later call replays it. */
export interface Replay {
  readonly exitCode: number;
  readonly bytes: Buffer;
  readonly isCut: boolean;
}

/** Undefined for anything that is not of our form: a program may have run the slot. `failed`: the mark says so. */
export function replayOf(result: unknown, failed: boolean): Replay | undefined {
  if (typeof result !== "object" || result === null) return undefined;
  const { exitCode, output, base64, cut } = result as { readonly [K in keyof KeptOutput]?: unknown };
  const isCode =
    typeof exitCode === "number" && Number.isInteger(exitCode) && exitCode >= 0 && exitCode < 256;
  if (!isCode || failed !== (exitCode !== 0)) return undefined;
  const isCut = cut === true;
  if (typeof output === "string") return { exitCode, bytes: Buffer.from(output), isCut };
  return typeof base64 === "string" ? { exitCode, bytes: Buffer.from(base64, "base64"), isCut } : undefined;
}

/** Resolves with the exit code that was kept, or with that of a program that cannot write its output. */
export async function writeReplay({ stdout }: Pick<Io, "stdout">, replay: Replay): Promise<number> {
  const { bytes, exitCode } = replay;
  const shown = stdout.isTTY ? escaped(bytes.toString()) : bytes;
  const error = await new Promise<NodeJS.ErrnoException | null | undefined>(
    (resolve) => void stdout.write(shown, resolve),
  );
  if (!error) return exitCode;
  return error.code === "EPIPE" ? EXIT.signal + os.constants.signals.SIGPIPE : EXIT.output;
}

/** Lines and tabs stay. */
const escaped = (text: string): string =>
  text
    .split(/(\r?\n|\t)/)
    .map((part, n) => (n % 2 === 1 ? part : printable(part, Infinity)))
    .join("");
