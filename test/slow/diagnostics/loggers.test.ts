// The loggers that programs have, as the `log` of a cluster: every line arrives, as one line, and once for each episode.
import { Console } from "node:console";
import { Writable } from "node:stream";
import pino from "pino";
import winston from "winston";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, type Logger, Mutex } from "../../../src/index.js";
import { type EtcdCluster, startEtcd } from "../../support/etcd/etcd.js";

/** Control characters, colors, bidirectional overrides, line separators. */
const HOSTILE = "\u001b[31mred\u001b[0m\r\nERROR fake line\u202e\u0000\u2028";
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u;
/** Of the longest values that are parsed, 64 KiB. */
const LONG = 60_000;
/** The longest lines: 2000 characters, and what is before them. */
const MAX_LINE = 2100;

/** What a logger has written. */
class Output extends Writable {
  #text = "";

  override _write(chunk: Buffer | string, _encoding: BufferEncoding, done: () => void): void {
    this.#text += chunk.toString();
    done();
  }

  get lines(): string[] {
    return this.#text.split("\n").slice(0, -1);
  }
}

interface Line {
  readonly level: string;
  readonly text: string;
}
interface Kind {
  readonly make: (output: Output) => Logger;
  readonly read: (line: string) => Line;
}

/** Its methods need `this`. */
class WithThis implements Logger {
  readonly #output: Output;

  constructor(output: Output) {
    this.#output = output;
  }

  warn(line: string): void {
    this.#output.write(`warn ${line}\n`);
  }

  error(line: string): void {
    this.#output.write(`error ${line}\n`);
  }
}

const LOGGERS: Readonly<Record<string, Kind>> = {
  pino: {
    make: (output) => pino({ level: "debug" }, output),
    read: (line) => {
      const { level, msg } = JSON.parse(line) as { level: number; msg: string };
      return { level: pino.levels.labels[level] ?? "", text: msg };
    },
  },
  winston: {
    make: (stream) => {
      const transports = [new winston.transports.Stream({ stream })];
      return winston.createLogger({ level: "debug", transports });
    },
    read: (line) => {
      const { level, message } = JSON.parse(line) as { level: string; message: string };
      return { level, text: message };
    },
  },
  console: {
    make: (output) => new Console(output, output),
    read: (text) => ({ level: "", text }),
  },
  "an object whose methods need `this`": {
    make: (output) => new WithThis(output),
    read: (line) => {
      const [level = ""] = line.split(" ", 1);
      return { level, text: line.slice(level.length + 1) };
    },
  },
};

let etcd: EtcdCluster;
beforeAll(async () => void (etcd = await startEtcd()), 60_000);
afterAll(() => etcd?.stop());

const base64 = (text: string) => Buffer.from(text).toString("base64");
const put = (key: string, value: string) =>
  etcd.member.gateway("/v3/kv/put", { key: base64(key), value: base64(value) });
const remove = (key: string) => etcd.member.gateway("/v3/kv/deleterange", { key: base64(key) });

const PATIENCE = { timeout: 20_000, interval: 200 };

describe.concurrent.each(Object.entries(LOGGERS))("%s", (kind, { make, read }) => {
  test(
    "gets one line for each episode, whatever names and owners are in it",
    { timeout: 90_000 },
    async () => {
      const output = new Output();
      await using cluster = connect({ hosts: etcd.endpoints, log: make(output) });
      const lines = () => output.lines.map(read).filter(({ text }) => text.includes("red"));
      const having = (text: string) => lines().filter((line) => line.text.includes(text));
      // Nearly as long as a name may be.
      const name = `${kind}/${HOSTILE.repeat(40)}`.slice(0, 850);
      const taken = `${kind}/taken`;

      // Another client's entry, with a long owner.
      await put(`${taken}/1`, JSON.stringify({ owner: HOSTILE.padEnd(LONG, "x"), since: "never" }));
      const waiting = new Mutex(cluster, taken).lock();
      const lock = await new Mutex(cluster, name, { warnHoldMs: 20 }).lock();
      await expect.poll(() => having("longer than its warnHoldMs"), PATIENCE).toHaveLength(1);
      await remove(lock.key);
      await expect.poll(() => having(" lost after "), PATIENCE).toHaveLength(1);
      await lock.release().catch(() => undefined);
      // The first line about a wait comes after 30 s.
      await expect.poll(() => having(`for "${taken}"`), { ...PATIENCE, timeout: 60_000 }).toHaveLength(1);
      await remove(`${taken}/1`);
      await (await waiting).release();
      await cluster.close();

      const [long] = having("longer than its warnHoldMs");
      const lost = having(" lost after ");
      const [wait] = having(`waiting 30 s for "${taken}": held by "\\u001b[31mred`);
      expect(lost).toHaveLength(1);
      expect([long, lost[0], wait].map((line) => line?.level)).toEqual(
        kind === "console" ? ["", "", ""] : ["warn", "error", "warn"],
      );
      const others = lines().filter(({ text }) => ![long, lost[0], wait].some((line) => line?.text === text));
      expect(others.filter(({ level }) => level !== "debug" && level !== "")).toEqual([]);
      for (const { text } of output.lines.map(read)) {
        expect(text).toMatch(/^leasehold: /);
        expect(text.length).toBeLessThan(MAX_LINE);
        expect(UNSAFE.test(text)).toBe(false);
      }
    },
  );
});
