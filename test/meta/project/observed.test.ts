// Every channel, every value that its messages can have, and every metric occurs in a test that makes it happen on a real etcd.
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { CHANNELS } from "../../../src/base/telemetry/channels.js";
import { METRICS } from "../../../src/observe/otel/metrics.js";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const MESSAGES = "base/telemetry/messages.ts";
const FOLDERS = ["test/integration", "test/slow"].map((folder) => path.join(ROOT, folder));

/** Comments, imports and titles mention what does not happen there. */
const NO_CODE = [
  /\/\*[^]*?\*\//g,
  /^\s*\/\/.*$/gm,
  /^import [^;]*;$/gm,
  /\b(?:test|describe)(?:\.\w+)*\(\s*(?:"[^"]*"|`[^`]*`|'[^']*')/g,
];
const codeOf = (file: string) =>
  NO_CODE.reduce((text, part) => text.replace(part, ""), readFileSync(file, "utf8"));

/** The code of the tests that have a real etcd. */
const codes = FOLDERS.flatMap((folder) =>
  readdirSync(folder, { recursive: true, encoding: "utf8" }).map((file) => path.join(folder, file)),
)
  .filter((file) => file.endsWith(".test.ts"))
  .map(codeOf)
  .filter((code) => /\b(startEtcd|twoSessions)\(/.test(code));

/** What gets the messages of a channel: see test/support/fixtures. */
const gets = (channel: string) => {
  const named = `(${channel}Channel|CHANNELS\\.${channel})\\b`;
  const kept = `new (Published|Traced|Messages)(<\\w+>)?\\(\\s*${named}`;
  return new RegExp(`\\b(${kept}|channel\\(${named}\\)\\.subscribe)`);
};
const readers = (channel: string) => codes.filter((code) => gets(channel).test(code));

/** The values of a union of strings in the sources, which begins after `start`. */
function valuesOf(file: string, start: RegExp): string[] {
  const [, union = ""] = new RegExp(`${start.source}([^;]*);`).exec(sourceOf(file)) ?? [];
  return [...union.matchAll(/"([^"]+)"/g)].map(([, value = ""]) => value);
}
const sourceOf = (file: string) => readFileSync(path.join(ROOT, "src", file), "utf8");
const typeOf = (name: string) => valuesOf(MESSAGES, new RegExp(`export type ${name} =`));
const stateOf = (message: string) => valuesOf(MESSAGES, new RegExp(`interface ${message}\\b[^}]*?\\bstate:`));
const LOSSES = valuesOf("errors.ts", /export type Loss =/);

const VALUES: readonly (readonly [channel: keyof typeof CHANNELS, values: readonly string[]])[] = [
  ["acquire", typeOf("AcquireOutcome")],
  ["holdEnd", ["released", ...LOSSES]],
  ["session", typeOf("SessionStateName")],
  ["member", stateOf("MemberMessage")],
  ["election", stateOf("ElectionMessage")],
];

describe("on a real etcd", () => {
  test.each(Object.keys(CHANNELS))("a test reads the channel %s", (channel) => {
    expect(readers(channel)).not.toEqual([]);
  });

  test.each(VALUES.flatMap(([channel, values]) => values.map((value) => [channel, value] as const)))(
    "a test of the channel %s expects %s",
    (channel, value) => {
      const expects = new RegExp(`["\`'][^"\`'\\n]*\\b${value}\\b`);

      expect(readers(channel).filter((code) => expects.test(code))).not.toEqual([]);
    },
  );

  test.each(Object.values(METRICS).map(({ name }) => name))("a test reads the metric %s", (metric) => {
    const reads = codes.filter((code) => /\binstrument\(/.test(code) && code.includes(`"${metric}"`));

    expect(reads).not.toEqual([]);
  });

  test.each(LOSSES)("a test counts a hold that was lost: %s", (loss) => {
    const counts = codes.filter((code) => code.includes('"leasehold.holds.lost"'));

    expect(counts.filter((code) => new RegExp(`"?${loss}"?: `).test(code))).not.toEqual([]);
  });

  test("there is something to look for, and to find", () => {
    expect(VALUES.map(([, values]) => values.length)).toEqual([7, 7, 4, 3, 6]);
    expect(codes.length).toBeGreaterThan(50);
  });
});
