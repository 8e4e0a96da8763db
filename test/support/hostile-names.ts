import fc from "fast-check";

const PIECES = [
  ..."az09AZ-._~% /\\\"'`*?<>{}[]",
  ..."\0\x01\x1f\x7f\u0085\u00a0",
  "..",
  "//",
  "%2F",
  "%00",
  "-2",
  "-02",
  "é",
  "e\u0301",
  "\u202e",
  "\u200f",
  "\u200d",
  "\ufeff",
  "\ufffd",
  "\uffff",
  "／",
  "💥",
  "\u{10ffff}",
];

/** What `new Mutex` takes: see the README. */
export const isName = (text: string): boolean => {
  const bytes = Buffer.from(text);
  const wellFormed = bytes.toString() === text;
  return wellFormed && bytes.length >= 1 && bytes.length <= 1024 && !/^\/|\/$|\/\//.test(text);
};

const pieces = fc
  .array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 12 })
  .map((all) => all.join(""));
const long = fc
  .tuple(pieces, fc.integer({ min: 1000, max: 1024 }))
  .map(([text, length]) => text.repeat(1024).slice(0, length));

/** Good names of the worst kind. */
export const hostileNames: fc.Arbitrary<string> = fc
  .oneof(
    { weight: 8, arbitrary: pieces },
    { weight: 2, arbitrary: fc.string({ unit: "binary", maxLength: 40 }) },
    { weight: 1, arbitrary: long },
  )
  .filter(isName);

/** Names that are, or look like, `name`, a prefix or a part of it, or the key of a place under it. */
export function namesLike(name: string, leaseId: bigint): string[] {
  const id = leaseId.toString(16);
  const parent = name.slice(0, Math.max(0, name.lastIndexOf("/")));
  const alike = [
    name,
    parent,
    name.slice(0, -1),
    ...["0", ".", "-2", " ", "\0", "/x", `/${id}`, `/${id}-2`, `/${id}-2/x`, `/${id}/${id}`].map(
      (end) => name + end,
    ),
    `${parent}/${id}-2`,
    `x/${name}`,
    name.normalize("NFC"),
    name.normalize("NFD"),
    name.toLowerCase(),
    name.toUpperCase(),
    encodeURIComponent(name),
    name.replaceAll("/", "%2F"),
  ];
  return [...new Set(alike)].filter(isName);
}
