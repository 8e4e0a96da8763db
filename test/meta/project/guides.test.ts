// The guides in docs/ against the code that they describe.
import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, it, test } from "vitest";
import { definitions, schema } from "../../../scripts/cli-json.js";
import { guardianTimeline } from "../../../scripts/guardian-timeline.js";
import { boundaries, timeline, withTtls } from "../../../scripts/lease-timeline.js";
import * as leasehold from "../../../src/index.js";
import { LeaseholdError } from "../../../src/index.js";
import { isOver, inJeopardy } from "../../../src/lock/session/lease.js";
import { rowsOf } from "../../support/fixtures/named-tests.js";
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
  const sectionOf = (title: string) => parts.find((part) => part.title === title)?.text ?? "";
  /** The errors: the code, the class, what is said of them, and the items below them. */
  const errors = [
    ...sectionOf("By error code").matchAll(/^- \*\*`([A-Z_0-9]+)`\*\*, `(\w+)`: (.*(?:\n .*)*)/gm),
  ].map(([, code = "", name = "", text = ""]) => {
    const [, ...more] = text.split(/^ +- /m);
    const kinds = more.map((item) => /^`(\w+)`/.exec(item)?.[1] ?? "");
    return { code, name, words: text.split(/\s+/).length, kinds };
  });
  const codes = unionIn("errors.ts", "LeaseholdErrorCode");

  it("finds the codes in the source", () => {
    expect(codes).toContain("LOCK_LOST");
  });

  test.each([...new Set([...codes, "KIND_MISMATCH"])])(
    "has %s, which names its class and says what to do",
    (code) => {
      const [error] = errors.filter((each) => each.code === code);

      expect(error?.name).toMatch(/Error$/);
      expect(error?.words).toBeGreaterThan(10);
    },
  );

  it("names the class of each code that the package exports", () => {
    const classes = Object.values(leasehold).filter(
      (each): each is typeof each & { name: string } =>
        typeof each === "function" && each.prototype instanceof LeaseholdError,
    );
    const unnamed = classes.filter((each) => !errors.some(({ name }) => name === each.name));

    expect(classes.length).toBeGreaterThanOrEqual(codes.length);
    expect(unnamed.map(({ name }) => name)).toEqual([]);
  });

  it("has each way to lose a lock, and each reason of a rejection", () => {
    const kindsOf = (code: string) => errors.find((each) => each.code === code)?.kinds ?? [];

    expect(kindsOf("LOCK_LOST")).toEqual(unionIn("errors.ts", "Loss"));
    expect([...kindsOf("ETCD_REFUSED")].sort()).toEqual(unionIn("errors.ts", "RefusalReason").sort());
  });

  it("has each warning of the process", () => {
    const sources = sourceFiles()
      .map((file) => readPage(`src/${file}`))
      .filter((text) => text.includes("emitWarning("));
    const warnings = sources.flatMap((text) =>
      [...text.matchAll(/type: "LeaseholdWarning",\s+code: "([A-Z_]+)"/g)].map(([, code = ""]) => code),
    );
    const symptoms = [...sectionOf("By symptom").matchAll(/`([A-Z_]+)`/g)].map(([, code = ""]) => code);
    const told = [...symptoms, ...errors.map(({ code }) => code)];

    expect(warnings.length).toBeGreaterThan(5);
    expect(warnings.filter((code) => !told.includes(code))).toEqual([]);
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

  it("is that of the types, which the output is tested against", () => {
    const say = "run node scripts/cli-json.js";
    expect(readPage("docs/cli.schema.json") === schema(defs), say).toBe(true);
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

describe("docs/comparison.md", () => {
  const rows = rowsOf(readPage("docs/comparison.md"));
  const features = rows.filter((cells) => cells.length === 4 && cells[0] !== "feature");
  const locks = rows.filter((cells) => cells.length === 3 && cells[0] !== "lock").map(([lock = ""]) => lock);

  /** At the commas that are not in code. */
  const itemsOf = (cell = "") => (cell ? cell.split(/, (?=(?:[^`]*`[^`]*`)*[^`]*$)/) : []);

  it("has a test for each feature that leasehold has, and says no of the others", () => {
    const untested = features.filter(
      ([, ours = ""]) => ours !== "no" && !/\]\(\.\.\/test\/\S+\.test\.ts\)/.test(ours),
    );

    expect(features.length).toBeGreaterThan(60);
    expect(untested).toEqual([]);
  });

  it("names only locks whose source it names, each once in a row", () => {
    const named = features.map(([feature, , yes, partly]) => ({
      feature,
      items: [yes, partly].flatMap((cell) => itemsOf(cell)),
    }));
    const lockOf = (item: string) => locks.find((lock) => new RegExp(`^${lock}(?![\\w-])`).test(item));
    const wrong = named.filter(({ items }) => {
      const found = items.map(lockOf);
      return found.includes(undefined) || new Set(found).size < found.length;
    });

    expect(locks).toHaveLength(16);
    expect(wrong).toEqual([]);
  });
});
