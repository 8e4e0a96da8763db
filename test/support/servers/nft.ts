// Which packets a network namespace lets pass, in nft(8) syntax.

/** For a host with one interface, `eth0`. */
export interface Rule {
  /** From the host's point of view. */
  readonly way: "in" | "out";
  /** The address at the other end; default: any. */
  readonly other?: string;
  /** The host's own TCP port; default: all traffic. */
  readonly port?: number;
  /** What happens to such a packet; `lose`: the percentage that is dropped. */
  readonly fate: "drop" | "reset" | { readonly lose: number };
}

export const TABLE = "leasehold";

/** A complete table for `nft -f -`. */
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
