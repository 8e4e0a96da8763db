import path from "node:path";

/** What distinguishes a member of a cluster from the others. */
export interface MemberRow {
  readonly name: string;
  /** The address that it listens on. */
  readonly host: string;
  readonly clientPort: number;
  readonly peerPort: number;
  /** The URL by which its peers reach it. */
  readonly peer: string;
}

/** What etcd prints when it serves its clients: releases up to 3.5 the first, the others the second. */
export const READY = /ready to serve client requests|serving client traffic/;

/** etcd's flags for a member of a new cluster. `folder` has the data of all members. */
export function memberArgs(row: MemberRow, folder: string, rows: readonly MemberRow[]): string[] {
  const client = `http://${row.host}:${row.clientPort}`;
  return [
    `--name=${row.name}`,
    `--data-dir=${path.join(folder, row.name)}`,
    `--listen-client-urls=${client}`,
    `--advertise-client-urls=${client}`,
    `--listen-peer-urls=http://${row.host}:${row.peerPort}`,
    `--initial-advertise-peer-urls=${row.peer}`,
    `--initial-cluster=${rows.map(({ name, peer }) => `${name}=${peer}`).join(",")}`,
    `--initial-cluster-token=${path.basename(folder)}`,
    "--initial-cluster-state=new",
    "--logger=zap",
    "--log-outputs=stderr",
  ];
}
