import { seeded, type Random } from "../../../lab/runner/random.js";
import { keyOf, LEASES, leaseOf, TEXT_KEYS, textKeyOf, weighted } from "./draws.js";
import { drawRange } from "./generate-ranges.js";
import { drawTxns } from "./generate-txns.js";
import type { PlannedWatch, Program, Revision, Step } from "./program.js";

const IDS = [1, 2, 3, 4, 5, 6, 7, 8] as const;

function drawWatch(random: Random): PlannedWatch {
  const startRevision: Revision = random.chance(0.75)
    ? { at: "exactly", revision: 0n }
    : weighted<Revision>(random, [
        [4, { at: "start", plus: random.between(0, 30) }],
        [3, { at: "now", plus: random.between(-6, 3) }],
        [2, { at: "compacted", plus: random.between(-1, 1) }],
        [1, { at: "exactly", revision: random.pick([1n, -1n]) }],
      ]);
  const events = random.pick(["ALL", "ALL", "PUT", "DELETE"] as const);
  const watchId = random.chance(0.1) ? 0 : random.pick(IDS);
  // Only text is put, so no event shows when etcd has served a watch of other bytes from the past.
  const isNew = startRevision.at === "exactly" && startRevision.revision === 0n;
  if (random.chance(0.4))
    return { watchId, key: isNew ? keyOf(random) : textKeyOf(random), startRevision, events };
  const [key, end] = random.pick([
    ["a/", "a0"],
    ["a/", "zz"],
    ["\0", "\0"],
    ["a/1", "\0"],
    ["b", "a"],
    ["a/2", ""],
    ["", "b"],
  ] as const);
  return { watchId, key, end, startRevision, events };
}

function drawCompaction(random: Random): Step {
  const revision = weighted<Revision>(random, [
    [5, { at: "now", plus: -random.between(0, 8) }],
    [2, { at: "now", plus: random.between(1, 5) }],
    [2, { at: "compacted", plus: -random.between(0, 2) }],
    [1, { at: "exactly", revision: random.pick([0n, -1n, 1n]) }],
  ]);
  return { kind: "compact", revision };
}

function drawGrant(random: Random): Step {
  const leaseId = random.chance(0.03) ? -5n : leaseOf(random);
  const ttlSeconds = random.pick([1, 5, 60, 3600, 3600, 0, -1, 9_000_000_000, 9_000_000_001]);
  return { kind: "grant", leaseId, ttlSeconds: random.chance(0.6) ? 3600 : ttlSeconds };
}

function drawStep(random: Random): Step {
  const kind = weighted(random, [
    [46, "txns"],
    [16, "range"],
    [9, "grant"],
    [5, "revoke"],
    [5, "timeToLive"],
    [4, "renew"],
    [6, "watch"],
    [3, "cancel"],
    [2, "probe"],
    [3, "compact"],
  ] as const);
  switch (kind) {
    case "txns":
      return { kind, txns: drawTxns(random) };
    case "range":
      return { kind, range: drawRange(random) };
    case "grant":
      return drawGrant(random);
    case "timeToLive":
      return { kind, leaseId: leaseOf(random), withoutKeys: random.chance(0.3) };
    case "watch":
      return { kind, watch: drawWatch(random) };
    case "cancel":
      return { kind, watchId: random.chance(0.1) ? 77 : random.pick(IDS) };
    case "probe":
      return { kind };
    case "compact":
      return drawCompaction(random);
    case "revoke":
    case "renew":
      return { kind, leaseId: leaseOf(random) };
  }
}

/** Leases with keys, of which one expires: several at a time have no order that etcd promises. */
function drawExpiry(random: Random): Step[] {
  const leaseId = LEASES[0]!;
  const put = (key: string): Step => ({
    kind: "txns",
    txns: [{ compare: [], success: [{ kind: "put", key, value: "x", leaseId }], failure: [] }],
  });
  return [
    { kind: "revoke", leaseId },
    { kind: "grant", leaseId, ttlSeconds: random.pick([1, 2]) },
    ...random.pick([TEXT_KEYS.slice(0, 3), TEXT_KEYS.slice(2, 6), TEXT_KEYS.slice(0, 1)]).map(put),
    ...(random.chance(0.5) ? [{ kind: "renew", leaseId } as const] : []),
    { kind: "elapse", ms: random.pick([500, 3600, 3600]) },
    { kind: "timeToLive", leaseId, withoutKeys: false },
    { kind: "range", range: { key: "\0", end: "\0" } },
  ];
}

/** The same seed gives the same program. `expiry`: time passes in it. */
export function generate(seed: string, length: number, expiry: boolean): Program {
  const random = seeded(seed);
  const steps = Array.from({ length }, () => drawStep(random));
  // Most puts with a lease find it.
  for (const [n, leaseId] of LEASES.entries())
    if (random.chance(0.8)) steps[n] = { kind: "grant", leaseId, ttlSeconds: 3600 };
  // No other lease may expire meanwhile.
  const lasting = steps.map((step) =>
    step.kind === "grant" && step.ttlSeconds < 60 && step.ttlSeconds > 0 ? { ...step, ttlSeconds: 60 } : step,
  );
  return expiry
    ? [...lasting.slice(0, length / 2), ...drawExpiry(random), ...lasting.slice(length / 2)]
    : steps;
}
