// The tables of docs/conformance/ map the cases and steps of others to tests: they must name only what is there.
import { expect, it } from "vitest";
import { isThere, namedIn, readConformance, rowsOf } from "../../support/fixtures/named-tests.js";

it.each([
  ["cases.md", 200],
  ["web-locks.md", 50],
] as const)("%s names only tests that are there", (page, least) => {
  const named = rowsOf(readConformance(page)).flatMap(([, , ours = ""]) => namedIn(ours));

  expect(named.length).toBeGreaterThan(least);
  expect(named.filter((each) => !isThere(each))).toEqual([]);
});
