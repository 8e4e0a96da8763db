// The rules of `leasehold doctor` that no healthy etcd breaks.
import { X509Certificate } from "node:crypto";
import { describe, expect, test } from "vitest";
import {
  clockFinding,
  lifetime,
  versionFinding,
  versionOf,
} from "../../../../src/tools/cli/doctor/identify.js";
import { clusterFindings } from "../../../../src/tools/cli/doctor/cluster.js";
import {
  type EndpointReport,
  examOf,
  fail,
  type MemberStatus,
  ok,
  skip,
  warn,
} from "../../../../src/tools/cli/doctor/exam.js";
import { redacting, textOf } from "../../../../src/tools/cli/doctor/doctor.js";
import { width } from "../../../../src/tools/cli/io.js";
import { spaceFinding } from "../../../../src/tools/cli/doctor/status.js";
import { systemClock } from "../../../../src/base/util/clock.js";
import { makeAuthority } from "../../../support/fixtures/certificates.js";

const DAY_MS = 86_400_000;

describe("the version of a member", () => {
  test.each([
    ["3.3.27", "warn"],
    ["3.4.44", "warn"],
    ["3.5.32", "warn"],
    ["3.5.33", "ok"],
    ["3.6.13", "warn"],
    ["3.6.14", "ok"],
    ["3.7.0-rc.1", "warn"],
    ["3.7.1", "ok"],
    ["3.8.0", "ok"],
    ["4.0.0", "ok"],
  ])("%s: %s", (version, mark) => {
    const { hint, ...found } = versionFinding(version);

    expect(found.mark).toBe(mark);
    expect(hint).toEqual(
      mark === "ok" ? undefined : expect.stringContaining("run etcd 3.5.33, 3.6.14, 3.7.1"),
    );
  });

  test.each([["3.5"], ["nginx"], ["3.5.1\u001b[31m"], [7], [undefined], [`3.5.1-${"x".repeat(99)}`]])(
    "is not %j",
    (text) => expect(versionOf(text)).toBeUndefined(),
  );
});

describe("a certificate", () => {
  const valid = new X509Certificate(makeAuthority("us").issue("etcd").certificate);
  // Later than its issue, whose time is in whole seconds.
  const now = Date.now() + 1;
  test.each([
    [now, "ok", "valid for 29 more days"],
    [now + 15 * DAY_MS, "ok", "valid for 14 more days"],
    [now + 17 * DAY_MS, "warn", "expires in 12 days"],
    [now + 31 * DAY_MS, "fail", "expired on "],
    [now - 2 * DAY_MS, "fail", "valid only from "],
  ])("at %d is %s: %s", (at, mark, detail) => {
    expect(lifetime("certificate", valid, at)).toEqual([
      expect.objectContaining({ mark, detail: expect.stringContaining(detail) as string }),
    ]);
  });
});

describe("the wall clock of a member", () => {
  test.each([
    [0, []],
    [1500, ["ok"]],
    [-4000, ["ok"]],
    [60_000, ["warn"]],
    [-60_000, ["warn"]],
  ])("%d ms ahead", (skew, marks) => {
    const date = skew === 0 ? NaN : 1_000_000 + skew;

    expect(clockFinding({ date, askedAt: 1_000_000 }).map(({ mark }) => mark)).toEqual(marks);
  });
});

describe("the space of a member", () => {
  test.each([
    [{ dbSize: "20480" }, "ok"],
    [{ dbSize: "79", dbSizeQuota: "100" }, "ok"],
    [{ dbSize: "81", dbSizeQuota: "100" }, "warn"],
    [{ dbSize: "\u001b[31m", dbSizeQuota: {} }, "ok"],
  ])("%j: %s", (fields, mark) => expect(spaceFinding(fields).map((found) => found.mark)).toEqual([mark]));
});

const STATUS: MemberStatus = {
  ...{ clusterId: "255", memberId: "1", leader: "1", raftTerm: "7", appliedIndex: 5000, version: "3.6.14" },
  ...{ isLearner: false, errors: [] },
};

const reported = (n: number, status: Partial<MemberStatus> = {}): EndpointReport => ({
  exam: examOf(`http://m${n}:2379`, {
    ...{ credentials: undefined, auth: undefined, prefix: "a/", ttlSeconds: 2, timeoutMs: 100 },
    ...{ clock: systemClock, signal: new AbortController().signal, secrets: new Set<string>() },
  }),
  ...{ findings: [], works: true, status: { ...STATUS, memberId: `${n}`, ...status } },
  members: [1, 2, 3].map((id) => ({
    ...{ id: `${id}`, name: `m${id}`, isLearner: false, clientUrls: [`http://m${id}:2379`] },
  })),
});

const bad = (...reports: EndpointReport[]) =>
  clusterFindings(reports)
    .filter(({ mark }) => mark !== "ok")
    .map(({ check, mark, detail }) => `${mark} ${check}: ${detail}`);

describe("the members of a cluster", () => {
  test("have nothing wrong", () => {
    expect(bad(reported(1), reported(2), reported(3))).toEqual([]);
  });

  test.each([
    [{ leader: "0" }, "fail leader: no leader known at http://m3:2379"],
    [{ leader: "2" }, "warn leader: members name different leaders: m1, m2"],
    [{ appliedIndex: 4000 }, undefined],
    [{ appliedIndex: 3999 }, "warn lag: http://m3:2379 is 1001 entries behind"],
    [{ version: "3.5.33" }, "warn versions: members run different releases: 3.5.33, 3.6.14"],
    [{ errors: ["memberID:2 alarm:CORRUPT "] }, "fail alarms: CORRUPT of member m2"],
    [
      { errors: ["memberID:2  alarm:NOSPACE", "memberID:2 alarm:NOSPACE "] },
      "fail alarms: NOSPACE of member m2",
    ],
    [{ errors: ["\u001b[31mnew"] }, "fail alarms: \\u001b[31mnew"],
    [{ errors: ["etcdserver: no leader"] }, undefined],
    [
      { clusterId: "16" },
      "fail cluster id: the endpoints belong to 2 clusters: ff (http://m1:2379, http://m2:2379); 10 (http://m3:2379)",
    ],
  ])("are told by one with %j", (status, finding) => {
    expect(bad(reported(1), reported(2), reported(3, status))).toEqual(
      finding === undefined ? [] : [finding],
    );
  });

  test("are not told by endpoints that fail", () => {
    const dead = (n: number): EndpointReport => ({ exam: reported(n).exam, findings: [], works: false });

    expect(bad(dead(1))).toEqual([
      "fail endpoints: 0 of 1 endpoint works",
      "skip cluster: no endpoint has reported its status",
    ]);
    expect(bad(reported(1), reported(2), dead(3))).toEqual([
      "warn endpoints: 2 of 3 endpoints work",
      "warn members: 2 of 3 voting members answered, 2 must; m3 did not, and no further member may fail",
    ]);
    expect(bad(reported(1), dead(2))).toEqual([
      "warn endpoints: 1 of 2 endpoints work",
      "warn members: 1 of 3 voting members answered, 2 must; m2 did not, and no further member may fail",
      "warn members: not examined, because --endpoints does not list them: m3 (http://m3:2379)",
    ]);
  });
});

test("no output has a password, and measured numbers have one decimal", () => {
  expect(redacting(new Set(["pass", "to.ken"]))("a pass, a to.ken, a pass")).toBe("a ***, a ***, a ***");
  expect(ok("a", "b", { lockMs: 1.26, version: "3.5.1" }).measured).toEqual({
    lockMs: 1.3,
    version: "3.5.1",
  });
});

describe("the text", () => {
  const plain = (text: string) => text;
  const one = (...findings: Parameters<typeof textOf>[0][number]["findings"]) => [
    { endpoint: "http://a:2379", findings },
  ];

  test("begins with the verdict and what is wrong, failures first, and what to do; then come all checks", () => {
    const sections = [
      ...one(ok("reach", "fine"), warn("version", "old", "update it")),
      { endpoint: undefined, findings: [fail("leader", "none", "start one"), skip("lag", "unknown")] },
    ];

    expect(textOf(sections, 80, plain)).toBe(
      [
        "something is wrong: 1 failed, 1 warning, 1 not checked",
        "  fail  the cluster: leader: none",
        "        to do: start one",
        "  warn  http://a:2379: version: old",
        "        to do: update it",
        "",
        "http://a:2379",
        "  ok    reach: fine",
        "  warn  version: old",
        "the cluster",
        "  fail  leader: none",
        "  skip  lag: unknown",
        "",
      ].join("\n"),
    );
  });

  test.each([
    [[ok("a", "b")], "all is well: 0 failed, 0 warnings, 0 not checked"],
    [[warn("a", "b", "c")], "works, with warnings: 0 failed, 1 warning, 0 not checked"],
  ])("of %j has the verdict %s", (findings, verdict) =>
    expect(textOf(one(...findings), 80, plain).split("\n")[0]).toBe(verdict),
  );

  test.each([80, 200])("fits %d columns, whatever a server says, and loses nothing", (columns) => {
    const hostile = `\u001b[31m${"word ".repeat(60)}${"x".repeat(500)} \u6f22\u5b57${"\u6f22".repeat(150)}\n`;
    const text = textOf(one(fail("server", hostile, hostile)), columns, plain);

    expect(text.split("\n").filter((line) => width(line) > columns)).toEqual([]);
    expect(text.replaceAll(/\s/g, "").split("x".repeat(500))).toHaveLength(4);
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
  });

  test("has no secret that a line break would have cut in two", () => {
    const detail = `${"a ".repeat(30)}the secret is long`;
    const text = textOf(one(fail("login", detail, "none")), 80, redacting(new Set(["the secret is long"])));

    expect(text).not.toMatch(/secret/);
  });
});
