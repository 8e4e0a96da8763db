import { describe, expect, it } from "vitest";
import { ruleset } from "../../support/servers/nft.js";

const linesOf = (text: string) => text.split("\n").map((line) => line.trim());

describe("rules for a host's packets", () => {
  it("cut off one peer both ways, by the address at its end", () => {
    const other = "10.77.0.2";

    const text = ruleset([
      { way: "in", other, fate: "drop" },
      { way: "out", other, fate: "drop" },
    ]);

    expect(text).toBe(
      [
        "table inet leasehold {",
        "  chain at_input {",
        "    type filter hook input priority 0;",
        '    iifname "eth0" ip saddr 10.77.0.2 drop',
        "  }",
        "  chain at_output {",
        "    type filter hook output priority 0;",
        '    oifname "eth0" ip daddr 10.77.0.2 drop',
        "  }",
        "}",
        "",
      ].join("\n"),
    );
  });

  it("in one direction only leave the other chain empty", () => {
    const lines = linesOf(ruleset([{ way: "in", fate: "drop" }]));

    expect(lines.filter((line) => line.endsWith(" drop"))).toEqual(['iifname "eth0" drop']);
  });

  it("know a service by the host's own port: where requests go to, where answers come from", () => {
    const lines = linesOf(
      ruleset([
        { way: "in", port: 2379, fate: "drop" },
        { way: "out", port: 2379, fate: "drop" },
      ]),
    );

    expect(lines).toContain('iifname "eth0" tcp dport 2379 drop');
    expect(lines).toContain('oifname "eth0" tcp sport 2379 drop');
  });

  it("refuse aloud with a reset, and lose a part of the packets by chance", () => {
    const lines = linesOf(
      ruleset([
        { way: "in", port: 2379, fate: "reset" },
        { way: "out", fate: { lose: 30 } },
      ]),
    );

    expect(lines).toContain('iifname "eth0" tcp dport 2379 reject with tcp reset');
    expect(lines).toContain('oifname "eth0" numgen random mod 100 < 30 drop');
  });
});
