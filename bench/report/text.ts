// A report as Markdown, which is also printed to the terminal.
import { markdownTable } from "../../test/support/fixtures/markdown.js";
import { isBusy } from "../frame/machine.js";
import { PEERS, type PeerName } from "../peers/peers.js";
import type { Report, Result, ResultRow, Verdict } from "./report.js";

/** Three significant digits: more would be noise. */
export function figure(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const digits = 2 - Math.floor(Math.log10(Math.abs(value)));
  const rounded = Number(value.toFixed(Math.min(6, Math.max(0, digits))));
  return rounded.toLocaleString("en", { maximumFractionDigits: 6 });
}

export function resultText(result: Result): string[] {
  const { title, columns, rows, failed, servers, members } = result;
  const head = ["", "", ...columns.map((column) => column.title)];
  const body = rows.map((row, n) => cells(row, rows[n - 1], result));
  const where = servers.map((server) =>
    server.startsWith("etcd") ? `${server}, ${membersText(members)}` : server,
  );
  const verdicts = result.verdicts.map((verdict) => `- ${verdictText(verdict)}`);
  return [
    ...[`## ${title}`, "", `${where.join("; ")}.`, ""],
    ...(body.length > 0 ? [...markdownTable([head, ...body]), ""] : []),
    ...(verdicts.length > 0 ? [...verdicts, ""] : []),
    ...failed.map(({ why }) => `- could not be measured: ${why}`),
    ...(failed.length > 0 ? [""] : []),
  ];
}

const membersText = (members: number) => (members === 1 ? "one member" : `${members} members`);

function cells(row: ResultRow, before: ResultRow | undefined, { columns }: Result): string[] {
  const name = before?.case === row.case ? "" : row.case;
  return [name, PEERS[row.peer].title, ...columns.map((column) => figure(row.medians[column.figure]))];
}

/** `met: 23.1 (>= 15): rate with 2 contenders, over Go's`, or `MISSED by 12 %: …`. */
export function verdictText({ target, value, met }: Verdict): string {
  const bound = "atLeast" in target.bound ? target.bound.atLeast : target.bound.atMost;
  const by = Math.abs(value / bound - 1) * 100;
  const how = met ? "met" : `MISSED by ${figure(by)} %`;
  return `${how}: ${figure(value)} (${boundText(target.bound)}): ${target.title}`;
}

/** `>= 15` */
export const boundText = (bound: Verdict["target"]["bound"]): string =>
  "atLeast" in bound ? `>= ${bound.atLeast}` : `<= ${bound.atMost}`;

export function reportText(report: Report): string[] {
  const { machine, versions, notRun, loadAtStart, loadAtEnd, questions } = report;
  const verdicts = questions.flatMap((question) => question.verdicts);
  const missed = verdicts.filter(({ met }) => !met);
  return [
    ...warnings(report),
    `- machine: ${machine.cores} cores of ${machine.cpu}, ${machine.memoryGiB} GiB, ${machine.system}; 4 KiB appended and synced in ${figure(machine.fsyncMs)} ms; servers keep their data on ${machine.data === "disk" ? "that disk" : "a file system in memory"}`,
    `- load: ${figure(loadAtStart)} at the start, ${figure(loadAtEnd)} at the end; ${Math.round(report.seconds)} s in all`,
    `- versions: Node.js ${machine.node}; ${Object.entries(versions)
      .map(([peer, version]) => `${titleOf(peer)} ${version}`)
      .join("; ")}`,
    ...Object.entries(notRun).map(([peer, why]) => `- not run: ${titleOf(peer)}: ${why}`),
    `- targets: ${verdicts.length - missed.length} of ${verdicts.length} met`,
    ...missed.map((verdict) => `  - ${verdictText(verdict)}`),
    "",
    ...questions.flatMap(resultText),
  ];
}

const titleOf = (peer: string) => PEERS[peer as PeerName].title;

export function warnings({ quick, machine, loadAtStart }: Pick<Report, "quick" | "machine" | "loadAtStart">) {
  return [
    ...(quick ? ["**Quick: a few operations each. These figures mean nothing.**", ""] : []),
    ...(isBusy(loadAtStart, machine.cores)
      ? [
          `**The machine was busy when this began (load ${figure(loadAtStart)}): compare nothing but the ratios.**`,
          "",
        ]
      : []),
  ];
}
