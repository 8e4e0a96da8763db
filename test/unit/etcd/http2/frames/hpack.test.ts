import { describe, expect, test } from "vitest";
import { encodeHeaders, HeaderDecoder, STATIC_TABLE } from "../../../../../src/etcd/http2/hpack.js";
import { codeOf, hex } from "../../../../support/fixtures/http2.js";

const LIMIT = 4_096;

const decode = (digits: string, limit = LIMIT) => new HeaderDecoder(limit).decode(hex(digits));
const entriesOf = (digits: string) => [...decode(digits)];
const encoded = (...headers: (readonly [string, string])[]) => encodeHeaders(headers).toString("hex");
/** A literal with a new name "a" and a Huffman string of those bytes. */
const huffman = (digits: string) => `000161${(0x80 + digits.length / 2).toString(16)}${digits}`;
const ascii = (text: string) => Buffer.from(text).toString("hex");

const REQUEST = [
  [":method", "GET"],
  [":scheme", "http"],
  [":path", "/"],
  [":authority", "www.example.com"],
];
const RESPONSE = [
  [":status", "302"],
  ["cache-control", "private"],
  ["date", "Mon, 21 Oct 2013 20:13:21 GMT"],
  ["location", "https://www.example.com"],
];

describe("the decoder of headers", () => {
  test.each([
    ["C.2.1", "400a 637573746f6d2d6b6579 0d 637573746f6d2d686561646572", [["custom-key", "custom-header"]]],
    ["C.2.2", "040c 2f73616d706c652f70617468", [[":path", "/sample/path"]]],
    ["C.2.3", "1008 70617373776f7264 06 736563726574", [["password", "secret"]]],
    ["C.2.4", "82", [[":method", "GET"]]],
    ["C.3.1", "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", REQUEST],
    ["C.4.1", "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", REQUEST],
    [
      "C.5.1",
      "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133" +
        "2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
      RESPONSE,
    ],
    [
      "C.6.1",
      "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6" +
        "2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
      RESPONSE,
    ],
  ])("reads the example %s of RFC 7541", (_, digits, headers) => {
    expect(entriesOf(digits)).toEqual(headers);
  });

  test("knows each header of the static table, and names by it", () => {
    STATIC_TABLE.forEach(([name, value], at) => {
      expect(entriesOf((0x80 + at + 1).toString(16))).toEqual([[name, value]]);
    });
    expect(STATIC_TABLE.length).toBe(61);
    expect(entriesOf("0f2e 0178")).toEqual([["www-authenticate", "x"]]);
  });

  test("reads an empty block, an empty value and a long string", () => {
    expect(entriesOf("")).toEqual([]);
    expect(entriesOf("00 0161 00")).toEqual([["a", ""]]);
    expect(entriesOf(huffman(""))).toEqual([["a", ""]]);
    expect(entriesOf(`00 0161 7fb909 ${"62".repeat(1_336)}`)).toEqual([["a", "b".repeat(1_336)]]);
  });

  test("reads each byte of a value as one character", () => {
    expect(entriesOf("00 0161 04 00ff e97f")).toEqual([["a", "\x00\xffé\x7f"]]);
  });

  test("reads an integer of five bytes", () => {
    expect(entriesOf(`00 7f 8080 8000 ${"61".repeat(127)} 00`)).toEqual([["a".repeat(127), ""]]);
  });

  test("joins the values of a repeated header", () => {
    expect(entriesOf(["00 0161 0162", "00 0163 0164", "10 0161 0165"].join(""))).toEqual([
      ["a", "b, e"],
      ["c", "d"],
    ]);
  });

  test("accepts updates of the table size to 0 at the start of a block", () => {
    expect(entriesOf("20")).toEqual([]);
    expect(entriesOf("20 20 82")).toEqual([[":method", "GET"]]);
  });

  test.each([
    ["a table size that is not 0", "21 82"],
    ["a table size above the prefix", "3f e11f 82"],
    ["a table size update behind a header", "82 20 0161 0162"],
    ["index 0", "80"],
    ["the first index of a dynamic table", "be"],
    ["the name of an entry in a dynamic table", "7e 0162"],
    ["an index above the prefix", "ff ffff07"],
    ["an integer of six bytes", `00 7f 8080 8080 00 ${"61".repeat(127)} 00`],
    ["an integer above 2^53", "00 7f ffff ffff ffff ffff 7f"],
    ["Huffman padding of zeros", huffman("18")],
    ["Huffman padding that is not all ones", huffman("1e")],
    ["Huffman padding of 8 bits", huffman("1fff")],
    ["a whole byte of Huffman padding", huffman("ff")],
    ["EOS in a Huffman string", huffman("ffffffff")],
    ["EOS and a symbol behind it in a Huffman string", huffman("fffffffc63")],
    ["the start of a symbol at the end of a Huffman string", huffman("fffe")],
  ])("refuses a block with %s", (_, digits) => {
    expect(codeOf(() => decode(digits))).toBe("COMPRESSION_ERROR");
  });

  test.each([
    ["an integer without its end", "ff"],
    ["an integer without its last byte", "7f 80 80"],
    ["no name", "00"],
    ["a part of the name", "00 0261"],
    ["no value", "00 0161"],
    ["no value behind an indexed name", "04"],
    ["a part of the value", "00 0161 0262"],
    ["a length beyond the block", "00 0161 ff ffff ff7f 62"],
    ["a part of a Huffman string", "00 0161 82 1c"],
  ])("refuses a block that ends with %s", (_, digits) => {
    expect(codeOf(() => decode(digits))).toBe("COMPRESSION_ERROR");
    expect(() => decode(digits)).toThrow("ends in the middle of a header");
  });

  test("bounds the header list as RFC 9113 counts it", () => {
    // 32 + 7 for ":method" + 3 for "GET"
    expect(decode("82", 42).size).toBe(1);
    expect(codeOf(() => decode("82", 41))).toBe("ENHANCE_YOUR_CALM");
    expect(codeOf(() => decode("8282", 83))).toBe("ENHANCE_YOUR_CALM");
    expect(codeOf(() => decode(huffman("1c64"), 35))).toBe("ENHANCE_YOUR_CALM");
  });
});

describe("the Huffman code", () => {
  /** Codes of appendix B of RFC 7541: one of each length, and those of characters that other tests cannot send. */
  const CODES: readonly (readonly [symbol: number, code: number, bits: number])[] = [
    [0x30, 0x0, 5],
    [0x74, 0x9, 5],
    [0x20, 0x14, 6],
    [0x3a, 0x5c, 7],
    [0x58, 0xfc, 8],
    [0x3f, 0x3fc, 10],
    [0x7c, 0x7fc, 11],
    [0x3e, 0xffb, 12],
    [0x00, 0x1ff8, 13],
    [0x7e, 0x1ffd, 13],
    [0x5e, 0x3ffc, 14],
    [0x7b, 0x7ffe, 15],
    [0x5c, 0x7fff0, 19],
    [0xe2, 0xfffed, 20],
    [0x01, 0x7fffd8, 23],
    [0x09, 0xffffea, 24],
    ...[
      2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127,
    ].map((symbol, n) => [symbol, 0xfffffe2 + n, 28] as const),
    [0xdc, 0xffffffd, 28],
    [0xf9, 0xffffffe, 28],
    [0x0a, 0x3ffffffc, 30],
    [0x0d, 0x3ffffffd, 30],
    [0x16, 0x3ffffffe, 30],
  ];
  const codes = CODES.map(([symbol, code, bits]) => ({ symbol, code: code.toString(2).padStart(bits, "0") }));

  /** The bytes of that many bits, padded with ones. */
  const bytesOf = (bits: string) => {
    const padded = bits.padEnd(Math.ceil(bits.length / 8) * 8, "1");
    return padded.replace(/.{8}/g, (byte) => parseInt(byte, 2).toString(16).padStart(2, "0"));
  };

  test.each(codes)("of symbol $symbol is $code", ({ symbol, code }) => {
    const char = String.fromCharCode(symbol);

    expect(entriesOf(huffman(bytesOf(code)))).toEqual([["a", char]]);
    // once more behind each number of bits, "0" having five of them
    for (let zeros = 1; zeros < 8; zeros++) {
      const bits = "00000".repeat(zeros) + code + code;
      expect(entriesOf(huffman(bytesOf(bits)))).toEqual([["a", "0".repeat(zeros) + char + char]]);
    }
  });
});

describe("the encoder of headers", () => {
  test("uses the static table for pairs and for names", () => {
    expect(encoded([":method", "POST"], [":path", "/a"], [":scheme", "http"], [":status", "404"])).toBe(
      `83 04 02 ${ascii("/a")} 86 8d`.replaceAll(" ", ""),
    );
    expect(encoded(["content-type", "application/grpc"])).toBe(`0f1010${ascii("application/grpc")}`);
    expect(encoded(["te", "trailers"])).toBe(
      `00 02 ${ascii("te")} 08 ${ascii("trailers")}`.replaceAll(" ", ""),
    );
  });

  test("marks what is secret as never indexed", () => {
    expect(encoded(["token", "s"])).toBe(`1005${ascii("token")}0173`);
    expect(encoded(["authorization", "s"])).toBe("1f080173");
    expect(encoded(["authorization", ""])).toBe("1f0800");
  });

  test.each([126, 127, 128, 254, 255, 1_337, 70_000])("writes a value of %i bytes", (length) => {
    const headers = [["a", "b".repeat(length)]] as const;

    expect([...new HeaderDecoder(1e6).decode(encodeHeaders(headers))]).toEqual(headers);
  });

  test.each([
    ["", "v"],
    ["A", "v"],
    ["a b", "v"],
    ["a:", "v"],
    ["a\n", "v"],
    ["é", "v"],
    ["token", "secret\n"],
    ["token", "secret\r\nhost: b"],
    ["token", "secret\u010a"],
    ["token", "secret\x00"],
    ["token", "secret\x7f"],
  ])("refuses %j: %j, and does not show the value", (name, value) => {
    expect(() => encoded([name, value])).toThrow(TypeError);
    expect(() => encoded([name, value])).not.toThrow(/secret/);
  });

  test("encodes no headers as an empty block", () => {
    expect(encoded()).toBe("");
  });
});

describe("the cache of the decoder", () => {
  const literal = (value: string) => encodeHeaders([["a", value]]);

  test("returns the same map for an equal block, and none for another", () => {
    const decoder = new HeaderDecoder(LIMIT);
    const first = decoder.decode(literal("1"));

    expect(decoder.decode(literal("1"))).toBe(first);
    expect([...decoder.decode(literal("2"))]).toEqual([["a", "2"]]);
  });

  test("does not depend on the memory of the block", () => {
    const decoder = new HeaderDecoder(LIMIT);
    const block = literal("1");
    decoder.decode(block);
    literal("2").copy(block);

    expect([...decoder.decode(block)]).toEqual([["a", "2"]]);
  });

  test("holds 16 blocks of 128 bytes at most", () => {
    const decoder = new HeaderDecoder(LIMIT);
    // a byte for the pattern, two for the name, one for the length
    const largest = literal("b".repeat(124));
    const tooLarge = literal("b".repeat(125));

    expect([largest.length, tooLarge.length]).toEqual([128, 129]);
    expect(decoder.decode(largest)).toBe(decoder.decode(largest));
    expect(decoder.decode(tooLarge)).not.toBe(decoder.decode(tooLarge));
    const kept = decoder.decode(largest);
    for (let n = 0; n < 15; n++) decoder.decode(literal(`${n}`));
    expect(decoder.decode(largest)).toBe(kept);
    decoder.decode(literal("one more"));
    expect(decoder.decode(largest)).not.toBe(kept);
  });

  test("does not keep a refusal", () => {
    const decoder = new HeaderDecoder(LIMIT);

    expect(codeOf(() => decoder.decode(hex("82be")))).toBe("COMPRESSION_ERROR");
    expect(codeOf(() => decoder.decode(hex("82be")))).toBe("COMPRESSION_ERROR");
  });
});
