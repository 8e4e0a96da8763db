// Protobuf by tables: a message is a table of its fields. It takes what any client sends, in linear time, and as deep as etcd's
// own messages go.
import { Reader } from "../../etcd/http2/codec-read.js";
import { Writer } from "../../etcd/http2/codec-write.js";
import { LENGTH_DELIMITED, VARINT } from "../../etcd/http2/fields.js";

/** An integer of 64 bits is a bigint, an enum or another small one a number. */
type Scalar = "int64" | "uint64" | "number" | "bool" | "bytes" | "text";
type Kind = Scalar | (() => Message);

/**
 * The number of a field in etcd's rpc.proto, and what it is. "optional": undefined if it was not sent, instead of its default, as
 * a message is.
 */
type Field = readonly [number: number, kind: Kind, how?: "optional" | "repeated"];

declare const DECODED: unique symbol;

/** The fields of a message by their names here. The fields of what it is decoded to are `T`'s. */
export type Message<T extends object = object> = Readonly<Record<keyof NoInfer<T> & string, Field>> & {
  /** For the compiler only. */
  readonly [DECODED]?: T;
};

/** etcd rejects more than 128 transactions in each other; each is two messages. What is deeper by far is no request. */
const DEEPEST = 2_000;

const DEFAULTS: Readonly<Record<Scalar, unknown>> = {
  int64: 0n,
  uint64: 0n,
  number: 0,
  bool: false,
  text: "",
  bytes: Buffer.alloc(0),
};

/** A table as the reader needs it, made once. */
interface Compiled {
  readonly byNumber: ReadonlyMap<number, readonly [name: string, ...Field]>;
  readonly empty: Readonly<Record<string, unknown>>;
  readonly lists: readonly string[];
}

const compiled = new WeakMap<Message, Compiled>();

function compile(message: Message): Compiled {
  const fields = Object.entries<Field>(message);
  const isScalar = ([, [, kind, how]]: [string, Field]): boolean => typeof kind === "string" && !how;
  const table = {
    byNumber: new Map(fields.map(([name, field]) => [field[0], [name, ...field] as const])),
    empty: Object.fromEntries(
      fields.filter(isScalar).map(([name, [, kind]]) => [name, DEFAULTS[kind as Scalar]]),
    ),
    lists: fields.filter(([, [, , how]]) => how === "repeated").map(([name]) => name),
  };
  compiled.set(message, table);
  return table;
}

/** @throws an `Error` if the bytes are no such message. */
export const decode = <T extends object>(message: Message<T>, body: Buffer): T =>
  read(new Reader(body), message, DEEPEST) as T;

function read(reader: Reader, message: Message, deepest: number): object {
  if (deepest === 0) throw new Error("messages in messages are too deep");
  const { byNumber, empty, lists } = compiled.get(message) ?? compile(message);
  const into: Record<string, unknown> = { ...empty };
  for (const name of lists) into[name] = [];
  while (reader.next()) {
    const [name, , kind, how] = byNumber.get(reader.field >>> 3) ?? [];
    if (name === undefined || kind === undefined) reader.skip({});
    else if (how !== "repeated") into[name] = readOne(reader, kind, deepest);
    else for (const one of elements(reader, kind, deepest)) (into[name] as unknown[]).push(one);
  }
  return into;
}

/** A list of enums comes one by one, or packed: each is a byte then. */
const elements = (reader: Reader, kind: Kind, deepest: number): Iterable<unknown> =>
  kind !== "number" || (reader.field & 7) === VARINT
    ? [readOne(reader, kind, deepest)]
    : (readOne(reader, "bytes", deepest) as Buffer);

function readOne(reader: Reader, kind: Kind, deepest: number): unknown {
  if (typeof kind === "function") {
    expect(reader, LENGTH_DELIMITED);
    const outer = reader.enter();
    const message = read(reader, kind(), deepest - 1);
    reader.leave(outer);
    return message;
  }
  expect(reader, kind === "bytes" || kind === "text" ? LENGTH_DELIMITED : VARINT);
  switch (kind) {
    case "int64":
      return reader.int64();
    case "uint64":
      return reader.uint64();
    case "number":
      return reader.number();
    case "bool":
      return reader.bool();
    case "bytes":
      return reader.bytes();
    case "text":
      return reader.text();
  }
}

function expect({ field }: Reader, type: number): void {
  if ((field & 7) !== type) throw new Error(`the field ${field >>> 3} has a wrong type`);
}

/** All answers share it: encoding is synchronous. */
const writer = new Writer();

/** With the prefix of gRPC. What has its default is left out. */
export function encode<T extends object>(message: Message<T>, value: T): Buffer {
  writer.start();
  write(message, value as Record<string, unknown>);
  return writer.finish();
}

function write(message: Message, value: Readonly<Record<string, unknown>>): void {
  for (const [name, [number, kind, how]] of Object.entries<Field>(message)) {
    const given = value[name];
    if (given === undefined) continue;
    if (how === "repeated") for (const one of given as unknown[]) writeOne(number, kind, one);
    else if (typeof kind !== "string" || how === "optional" || !isDefault(given))
      writeOne(number, kind, given);
  }
}

const isDefault = (value: unknown): boolean =>
  value === 0 || value === 0n || value === false || (value as { length?: number }).length === 0;

function writeOne(number: number, kind: Kind, value: unknown): void {
  const integer = (number << 3) | VARINT;
  const delimited = (number << 3) | LENGTH_DELIMITED;
  if (typeof kind === "function") {
    const start = writer.open(delimited);
    write(kind(), value as Record<string, unknown>);
    writer.close(start);
  } else if (kind === "bytes" || kind === "text") writer.bytes(delimited, value as string | Buffer);
  else writer.integer(integer, kind === "bool" ? 1 : (value as number | bigint));
}
