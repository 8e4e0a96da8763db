// The guides in docs/ against the code that they describe.
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it, test } from "vitest";
import { definitions, schema, withTypes } from "../../../scripts/cli-json.js";
import { guardianTimeline } from "../../../scripts/guardian-timeline.js";
import { boundaries, timeline, withTtls } from "../../../scripts/lease-timeline.js";
import { EXIT } from "../../../src/tools/cli/io.js";
import * as leasehold from "../../../src/index.js";
import { LeaseholdError } from "../../../src/index.js";
import { isOver, inJeopardy } from "../../../src/lock/session/lease.js";
import { partsOf, readPage } from "../../support/fixtures/pages.js";

const source = (file: string) => readFileSync(new URL(`../../../src/${file}`, import.meta.url), "utf8");
const sourceFiles = () =>
  readdirSync(new URL("../../../src/", import.meta.url), { recursive: true, encoding: "utf8" }).filter(
    (file) => file.endsWith(".ts"),
  );
/** The members of a union of string literals. */
const unionIn = (file: string, name: string) =>
  [...(new RegExp(`export type ${name} =([^;]*);`).exec(source(file))?.[1] ?? "").matchAll(/"([^"]+)"/g)].map(
    ([, member = ""]) => member,
  );

describe("docs/troubleshooting.md", () => {
  const parts = partsOf("docs/troubleshooting.md");
  /** The rows of a section's tables: the code in the first cell, and the text of the others. */
  const rows = (title: string) =>
    [...(parts.find((part) => part.title === title)?.text ?? "").matchAll(/^\| (.*) \|$/gm)].map(
      ([, row = ""]) => {
        const [first = "", ...cells] = row.split(" | ").map((cell) => cell.trim());
        return { first, keys: [...first.matchAll(/`([^`]+)`/g)].map(([, key = ""]) => key), cells };
      },
    );
  const errors = rows("By error code");
  const codes = unionIn("errors.ts", "LeaseholdErrorCode");

  it("finds the codes in the source", () => {
    expect(codes).toContain("LOCK_LOST");
  });

  test.each([...new Set([...codes, "KIND_MISMATCH"])])(
    "has a row for %s, which names its class and says what to do",
    (code) => {
      const [row] = errors.filter(({ keys }) => keys[0] === code);

      expect(row?.cells[0]).toMatch(/^`\w+Error`: \S+/);
      expect(row?.cells[1]?.split(/\s+/).length).toBeGreaterThan(3);
    },
  );

  it("names the class of each code that the package exports", () => {
    const classes = Object.values(leasehold).filter(
      (each): each is typeof each & { name: string } =>
        typeof each === "function" && each.prototype instanceof LeaseholdError,
    );
    const unnamed = classes.filter(
      ({ name }) => !errors.some(({ cells }) => cells[0]?.startsWith(`\`${name}\`: `)),
    );

    expect(classes.length).toBeGreaterThanOrEqual(codes.length);
    expect(unnamed.map(({ name }) => name)).toEqual([]);
  });

  it("has each way to lose a lock, and each reason of a rejection", () => {
    const kindsOf = (code: string) =>
      errors.filter(({ keys }) => keys[0] === code).map(({ keys }) => keys.at(-1));

    expect(kindsOf("LOCK_LOST")).toEqual(unionIn("errors.ts", "Loss"));
    expect(kindsOf("ETCD_REFUSED").sort()).toEqual(unionIn("errors.ts", "RefusalReason").sort());
  });

  it("has each warning of the process", () => {
    const sources = sourceFiles()
      .map((file) => readPage(`src/${file}`))
      .filter((text) => text.includes("emitWarning("));
    const warnings = sources.flatMap((text) =>
      [...text.matchAll(/type: "LeaseholdWarning",\s+code: "([A-Z_]+)"/g)].map(([, code = ""]) => code),
    );
    const told = [...rows("By symptom"), ...errors].flatMap(({ keys }) => keys);

    expect(warnings.length).toBeGreaterThan(5);
    expect(warnings.filter((code) => !told.includes(code))).toEqual([]);
  });

  it("has each exit code of the command but 0", () => {
    const exits = errors.flatMap(({ first }) =>
      /^\d+(, \d+)*$/.test(first) ? first.split(", ").map(Number) : [],
    );

    expect(exits.sort((a, b) => a - b)).toEqual(
      Object.values(EXIT)
        .filter((code) => code !== 0)
        .sort((a, b) => a - b),
    );
  });
});

describe("the figures of the timeline", () => {
  it("are those of the code: the deadline and the jeopardy begin where the guides say", () => {
    const { deadline, jeopardy } = boundaries();
    const sent = { monotonic: 0, suspend: 0 };
    const renewal = { sent, ttlMs: 1000 };
    const at = (ms: number) => ({ monotonic: ms, suspend: ms });

    expect([isOver(renewal, deadline * 1000 - 1), isOver(renewal, deadline * 1000)]).toEqual([false, true]);
    expect([inJeopardy(renewal, at(jeopardy * 1000)), inJeopardy(renewal, at(jeopardy * 1000 + 1))]).toEqual([
      false,
      true,
    ]);
  });

  const SAY_HOW = "run node scripts/lease-timeline.js";

  it("are those in the picture of the guardian, with what is measured", () => {
    const say = "run node scripts/guardian-timeline.js";
    expect(readPage("docs/guardian-timeline.svg") === guardianTimeline(), say).toBe(true);
  });

  it("are those in the picture and in the table", () => {
    expect(readPage("docs/lease-timeline.svg") === timeline(), SAY_HOW).toBe(true);
    const page = readPage("docs/leases.md");
    expect(withTtls(page) === page, SAY_HOW).toBe(true);
  });
});

describe("docs/cli.schema.json", () => {
  const defs = definitions();

  it("and the list in docs/cli-json.md are those of the types, which the output is tested against", () => {
    const say = "run node scripts/cli-json.js";
    const page = readPage("docs/cli-json.md");
    expect(readPage("docs/cli.schema.json") === schema(defs), say).toBe(true);
    expect(withTypes(page, defs) === page, say).toBe(true);
  });

  it("has what may be missing, what is null, and the texts of the types", () => {
    expect(defs["OnceJson"]).toMatchObject({
      required: ["event", "name", "slot", "reason", "message"],
      properties: { event: { const: "once" }, failed: { type: "boolean" }, owner: { type: "string" } },
    });
    expect(defs["ReleaseJson"]).toEqual({
      description: "`release`: null if there was no entry to remove, or the answer was no.",
      type: "object",
      properties: {
        name: { type: "string" },
        released: { anyOf: [{ type: "null" }, { $ref: "#/$defs/ContenderJson" }] },
      },
      required: ["name", "released"],
    });
  });
});
