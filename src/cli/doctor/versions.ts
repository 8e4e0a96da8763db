import { ok, warn, type Finding } from "./finding.js";

/** docs/operations.md has the reasons. */
const ADVISED: readonly (readonly [major: number, minor: number, patch: number])[] = [
  [3, 5, 33],
  [3, 6, 14],
  [3, 7, 1],
];
const ADVICE =
  "run etcd 3.5.33, 3.6.14, 3.7.1 or later: docs/operations.md says what the earlier ones do wrong";

/** A version of etcd, or undefined: web servers have versions, too. */
export const versionOf = (value: unknown): string | undefined =>
  typeof value === "string" && /^\d{1,4}\.\d{1,4}\.\d{1,4}([-+.\w]{0,40})$/.test(value) ? value : undefined;

/** The check of one member's version. */
export function versionFinding(version: string): Finding {
  const [major = 0, minor = 0, patch = 0] = version.split(/[^\d]/).map(Number);
  const [oldest] = ADVISED;
  const isBefore = oldest !== undefined && (major < oldest[0] || (major === oldest[0] && minor < oldest[1]));
  if (isBefore) return warn("version", `etcd ${version}, of a series at its end of life`, ADVICE);
  const series = ADVISED.find((advised) => advised[0] === major && advised[1] === minor);
  if (series && patch < series[2]) return warn("version", `etcd ${version}`, ADVICE);
  return ok("version", `etcd ${version}`, { version });
}
