// What a complete run writes to the repository; pure functions.
import { between, markdownTable } from "../../test/support/fixtures/markdown.js";
import { PEERS, type PeerName } from "../peers/peers.js";
import { plot, type Series } from "./plot.js";
import type { Report } from "./report.js";
import { figure, reportText } from "./text.js";

const COLORS: Readonly<Record<PeerName, string>> = {
  ...{ leasehold: "#3b82f6", "leasehold-sticky": "#1d4ed8", "leasehold-etcd3": "#06b6d4" },
  ...{ go: "#d97706", etcd3: "#a855f7" },
  ...{ bare: "#808890", "bare-http2": "#808890", "node-http2": "#808890", "grpc-js": "#808890" },
  ...{ redlock: "#dc2626", "redlock-fsync": "#dc2626" },
  ...{ "redis-semaphore": "#16a34a", "redis-semaphore-fsync": "#16a34a" },
};
const PANELS = [
  { figure: "rate", title: "hand-overs/s" },
  { figure: "p50", title: "hand-over, p50 ms" },
  { figure: "p99", title: "hand-over, p99 ms" },
];

export function plotOf({ questions }: Report): string {
  const rows = questions.flatMap((question) => question.rows);
  const series = (Object.keys(PEERS) as PeerName[]).flatMap((peer): Series[] => {
    const points = rows.flatMap(({ contenders, medians: figures, ...row }) =>
      row.peer === peer && contenders !== undefined ? [{ contenders, figures }] : [],
    );
    const look = { title: PEERS[peer].title, color: COLORS[peer], dashed: peer.endsWith("-fsync") };
    return points.length === 0 ? [] : [{ ...look, points }];
  });
  return plot(series, PANELS);
}

export function resultsPage(report: Report): string {
  const head = [
    ...["# What the bench found", ""],
    ...["Written by `npm run bench -- --write`; [how each figure is made](README.md).", ""],
    ...["![hand-over rate and latency by the number of contenders](plot.svg)", ""],
  ];
  return `${[...head, ...reportText(report)].join("\n").trimEnd()}\n`;
}

/** docs/operations.md with the figures of those targets that have a line there. */
export function operationsWith(page: string, { questions }: Report): string {
  const verdicts = questions.flatMap((question) => question.verdicts);
  const rows = verdicts.flatMap(({ target, figure: ours, over, value }) =>
    target.shown === undefined ? [] : [[target.shown, figure(ours), figure(over), figure(value)]],
  );
  const table = markdownTable([["measured", "leasehold", PEERS.go.title, "ratio"], ...rows]);
  const met = verdicts.filter((verdict) => verdict.met).length;
  const missed = `${met} of ${verdicts.length} targets are met: \`bench/RESULTS.md\` lists the missed ones, with their figures.`;
  return between(page, "bench", [...table, "", missed]);
}
