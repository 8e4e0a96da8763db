// Which packets a network namespace lets pass, in the words of nft(8).

/** Of a host with one interface, `eth0`. */
export interface Rule {
  /** As the host sees it. */
  readonly way: "in" | "out";
  /** The address at the other end; default: any. */
  readonly other?: string;
  /** The host's own TCP port; default: all traffic. */
  readonly port?: number;
  /** What becomes of such a packet; `lose`: of so many in a hundred. */
  readonly fate: "drop" | "reset" | { readonly lose: number };
}

export const TABLE = "leasehold";

/** A whole table, for `nft -f -`. */
export function ruleset(rules: readonly Rule[]): string {
  return [
    `table inet ${TABLE} {`,
    ...chain("input", rules, "in"),
    ...chain("output", rules, "out"),
    "}",
    "",
  ].join("\n");
}

function chain(hook: "input" | "output", rules: readonly Rule[], way: Rule["way"]): string[] {
  const mine = rules.filter((rule) => rule.way === way).map((rule) => `    ${line(rule)}`);
  return [`  chain at_${hook} {`, `    type filter hook ${hook} priority 0;`, ...mine, "  }"];
}

function line({ way, other, port, fate }: Rule): string {
  const [device, address, own] = way === "in" ? ["iifname", "saddr", "dport"] : ["oifname", "daddr", "sport"];
  return [
    `${device} "eth0"`,
    ...(other === undefined ? [] : [`ip ${address} ${other}`]),
    ...(port === undefined ? [] : [`tcp ${own} ${port}`]),
    verdict(fate),
  ].join(" ");
}

function verdict(fate: Rule["fate"]): string {
  if (fate === "reset") return "reject with tcp reset";
  return fate === "drop" ? "drop" : `numgen random mod 100 < ${fate.lose} drop`;
}
