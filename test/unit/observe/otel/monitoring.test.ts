// The names in docs/monitoring and docs/observability.md against those in src/observe/otel and in what Prometheus scrapes.
import { readFileSync } from "node:fs";
import { beforeAll, describe, expect, test } from "vitest";
import {
  electionChannel,
  memberChannel,
  renewedChannel,
  sessionChannel,
  shardChannel,
} from "../../../../src/base/telemetry/channels.js";
import { ATTRIBUTES, METRICS } from "../../../../src/observe/otel/metrics.js";
import { acquire, HOSTS, release } from "../../../support/fixtures/otel-messages.js";
import { MemorySdk } from "../../../support/fixtures/otel.js";
import { samplesIn } from "../../../support/fixtures/prometheus.js";

const read = (file: string) => readFileSync(new URL(`../../../../${file}`, import.meta.url), "utf8");
const ofPrometheus = (name: string) => name.replaceAll(".", "_");
/** The Collector and Prometheus' own receiver add units to names; the exporter for JavaScript does not. */
const UNIT = "(_seconds)?";

const DASHBOARD = "docs/monitoring/grafana.json";
const ALERTS = "docs/monitoring/alerts.yml";

interface Dashboard {
  readonly panels: readonly { readonly targets: readonly { readonly expr: string }[] }[];
}

/** Metrics and labels in PromQL. */
const namesIn = (text: string) => [
  ...new Set(text.replaceAll(UNIT, "").match(/\bleasehold_[a-z_]+\b/g) ?? []),
];
const expressions = (JSON.parse(read(DASHBOARD)) as Dashboard).panels
  .flatMap(({ targets }) => targets)
  .map(({ expr }) => expr)
  .join("\n");

/** The names of samples and labels in a scrape of every metric. */
let scraped: Set<string>;
let metricsOfScrape: string[];

beforeAll(async () => {
  const sdk = new MemorySdk();
  const instrumentation = sdk.instrument();
  acquire(41n);
  release(41n);
  const session = { hosts: HOSTS, leaseId: 7n, owner: "one", ttlSeconds: 15, error: undefined };
  sessionChannel.publish({
    ...{ ...session, from: undefined, to: "live", members: new Map() },
    ...{ remainingMs: 1, sinceLastRenewalMs: 1, stalledMs: 0 },
  });
  renewedChannel.publish({ ...session, durationMs: 1 });
  memberChannel.publish({ ...session, host: "a", state: "down" });
  electionChannel.publish({
    ...{ ...session, name: "boss", label: "boss", state: "elected" },
    ...{ fence: 1n, delayMs: undefined },
  });
  shardChannel.publish({
    ...{ hosts: HOSTS, name: "feeds", label: "feeds", shard: 7, state: "moved" },
    ...{ fence: 1n, drainMs: 5, error: undefined },
  });
  const { all } = samplesIn(await sdk.scrape());
  instrumentation.disable();
  await sdk.shutdown();
  const ours = all.filter(({ name }) => name.startsWith("leasehold_"));
  scraped = new Set(ours.flatMap(({ name, labels }) => [name, ...Object.keys(labels)]));
  metricsOfScrape = [...new Set(ours.map(({ name }) => name.replace(/_(total|sum|count|bucket)$/, "")))];
});

describe("a scrape", () => {
  test("has every metric of src/observe/otel, and no other", () => {
    const names = Object.values(METRICS).map(({ name }) => ofPrometheus(name));

    expect(metricsOfScrape.sort()).toEqual(names.sort());
  });
});

describe.each([
  [DASHBOARD, read(DASHBOARD)],
  [ALERTS, read(ALERTS)],
])("%s", (_, text) => {
  test("names metrics and labels that a scrape has", () => {
    expect(namesIn(text).length).toBeGreaterThan(4);
    expect(namesIn(text).filter((name) => !scraped.has(name))).toEqual([]);
  });

  test("finds each metric in seconds also where its unit is part of its name", () => {
    const inSeconds = Object.values(METRICS).filter(({ unit }) => unit === "s");
    const bare = inSeconds
      .map(({ name }) => ofPrometheus(name))
      .filter((name) => new RegExp(`${name}(?!\\(_seconds\\)\\?)`).test(text));

    expect(bare).toEqual([]);
  });
});

describe("the dashboard", () => {
  test("has a panel for each metric", () => {
    const shown = namesIn(expressions).map((name) => name.replace(/_(total|count|bucket)$/, ""));
    const names = Object.values(METRICS).map(({ name }) => ofPrometheus(name));

    expect(names.filter((name) => !shown.includes(name))).toEqual([]);
  });

  test("has panels that do not overlap, each with an id of its own", () => {
    const { panels } = JSON.parse(read(DASHBOARD)) as {
      panels: { id: number; gridPos: { x: number; y: number; w: number; h: number } }[];
    };
    const overlap = panels.filter(({ id, gridPos: a }) =>
      panels.some(
        ({ id: other, gridPos: b }) =>
          other > id && a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h,
      ),
    );

    expect(overlap).toEqual([]);
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
  });
});

describe("docs/observability.md", () => {
  const [, section = ""] = /^## OpenTelemetry$([^]*?)^## /m.exec(read("docs/observability.md")) ?? [];
  const spans = [...section.matchAll(/`(leasehold\.[a-z_.]+)`/g)].map(([, name = ""]) => name);

  test("lists every metric with its unit, and every attribute", () => {
    const missing = Object.values(METRICS).filter(
      ({ name, unit }) => !new RegExp(`^\\| \`${name}\` +\\|.*\\| \`${unit}\` +\\|`, "m").test(section),
    );

    expect(missing).toEqual([]);
    expect(Object.values(ATTRIBUTES).filter((name) => !spans.includes(name))).toEqual([]);
  });

  test("names no metric, span or attribute that does not exist", () => {
    const known = [
      ...Object.values(METRICS).map(({ name }) => name),
      ...Object.values(ATTRIBUTES),
      ...["leasehold.acquire", "leasehold.hold", "leasehold.hold.long"],
    ];

    expect(spans.filter((name) => !known.includes(name))).toEqual([]);
  });
});
