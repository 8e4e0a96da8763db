// The guides in docs/ against the code that they describe.
import { readFileSync } from "node:fs";
import { describe, expect, it, test } from "vitest";
import { guardianTimeline } from "../../../scripts/guardian-timeline.js";
import { boundaries, timeline, withTimeline, withTtls } from "../../../scripts/lease-timeline.js";
import { EXIT } from "../../../src/tools/cli/io.js";
import * as leasehold from "../../../src/index.js";
import { LeaseholdError } from "../../../src/index.js";
import { isOver, inJeopardy } from "../../../src/lock/session/lease.js";
import { partsOf, readPage } from "../../support/fixtures/pages.js";

const source = (file: string) => readFileSync(new URL(`../../../src/${file}`, import.meta.url), "utf8");
/** The members of a union of string literals. */
const unionIn = (file: string, name: string) =>
  [...(new RegExp(`export type ${name} =([^;]*);`).exec(source(file))?.[1] ?? "").matchAll(/"([^"]+)"/g)].map(
    ([, member = ""]) => member,
  );

describe("docs/troubleshooting.md", () => {
  const parts = partsOf("docs/troubleshooting.md");
  const section = (title: string) => parts.find((part) => part.title === title)?.text ?? "";
  const codes = unionIn("errors.ts", "LeaseholdErrorCode");

  it("finds the codes in the source", () => {
    expect(codes).toContain("LOCK_LOST");
  });

  test.each([...new Set([...codes, "KIND_MISMATCH"])])(
    "has a section for %s, which names its class and says what to do",
    (code) => {
      const text = section(code);

      expect(text).toMatch(/^`\w+Error`: \S+/m);
      expect(text.split(/\s+/).length).toBeGreaterThan(30);
    },
  );

  it("names the class of each code that the package exports", () => {
    const classes = Object.values(leasehold).filter(
      (each): each is typeof each & { name: string } =>
        typeof each === "function" && each.prototype instanceof LeaseholdError,
    );
    const unnamed = classes.filter(({ name }) => !parts.some(({ text }) => text.includes(`\n\`${name}\`: `)));

    expect(classes.length).toBeGreaterThanOrEqual(codes.length);
    expect(unnamed.map(({ name }) => name)).toEqual([]);
  });

  it("has each way to lose a lock, and each reason of a rejection", () => {
    const cells = (title: string) =>
      [...section(title).matchAll(/^\| `([^`]+)`/gm)].map(([, cell = ""]) => cell).slice(1);

    expect(cells("LOCK_LOST")).toEqual(unionIn("errors.ts", "Loss"));
    expect(cells("ETCD_REFUSED").sort()).toEqual(unionIn("errors.ts", "RefusalReason").sort());
  });

  it("has each exit code of the command but 0", () => {
    const rows = [...section("Exit codes of the command").matchAll(/^\| (\d+)/gm)].map(([, code]) =>
      Number(code),
    );

    expect(rows).toEqual(
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

  it("are those in the picture and in the tables", () => {
    expect(readPage("docs/lease-timeline.svg") === timeline(), SAY_HOW).toBe(true);
    const page = readPage("docs/leases.md");
    for (const write of [withTtls, withTimeline]) expect(write(page) === page, SAY_HOW).toBe(true);
  });
});
