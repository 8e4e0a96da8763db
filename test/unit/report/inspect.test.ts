import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import { connect } from "../../../src/connect.js";
import { INSPECT, inspected, type InspectArguments } from "../../../src/telemetry/inspect.js";
import { Session } from "../../../src/session/cluster.js";

class Shown {
  constructor(private readonly read: () => object) {}

  [INSPECT](...how: InspectArguments): string {
    return inspected("Shown", this.read, how);
  }
}

describe("what console.log shows", () => {
  test("is the class and its fields on one line, without those that are undefined", () => {
    const fields = { name: "jobs", fence: 41n, held: true, remainingMs: 12_999.7, label: undefined };

    expect(inspect(new Shown(() => fields))).toBe(
      "Shown { name: 'jobs', fence: 41n, held: true, remainingMs: 13000 }",
    );
  });

  test("respects the depth, and the options of whoever prints it", () => {
    const shown = new Shown(() => ({ names: [["a"]] }));

    expect(inspect({ a: { b: { c: shown } } })).toContain("c: [Shown]");
    expect(inspect(shown, { depth: 0 })).toBe("Shown { names: [Array] }");
    expect(inspect(shown, { colors: true })).toContain("\u001b[");
  });

  test("has no control characters, and a limited length, whatever a name contains", () => {
    const name = `\u001b[31m\u202e\r\n${"x".repeat(1 << 20)}`;
    const text = inspect(new Shown(() => ({ name })));

    expect(text.length).toBeLessThan(300);
    expect(/[\p{Cc}\p{Cf}]/u.test(text.replaceAll("\n", ""))).toBe(false);
  });

  test("of a cluster contains no secret", () => {
    const auth = { username: "jo", password: "hunter2" };
    const text = inspect(connect({ hosts: "http://a:2379", auth }), { depth: Infinity, showHidden: true });

    expect(text.replace(/\s+/g, " ")).toBe(
      `Cluster { hosts: [ 'http://a:2379', [length]: 1 ], ok: true, session: 'none', remainingMs: 0 }`,
    );
  });

  test("of an object that only inherits from the class is its class", () => {
    expect(inspect(Object.create(Session.prototype))).toBe("Session {}");
  });
});
