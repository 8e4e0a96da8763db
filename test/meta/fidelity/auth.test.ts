// Several clients with tokens and permissions: the simulated etcd answers as the real one does.
import { describe, expect, test } from "vitest";
import { type AuthQuirks, authQuirksOf } from "../../../src/testing/memory/quirks.js";
import { generate } from "../../sim/fidelity/auth/generate.js";
import { difference, play } from "../../sim/fidelity/auth/play.js";
import { Real } from "../../sim/fidelity/auth/real.js";
import { Simulated } from "../../sim/fidelity/auth/simulated.js";
import type { SimVersion } from "../../../src/testing/memory/protocol.js";
import { makeJwtArgs } from "../../support/fixtures/jwt.js";

const TTL_SECONDS = 5;
/** Three times that is more than a token lives, also if etcd deletes it a second late. */
const IDLE_MS = 2400;
const JWT_TTL_SECONDS = 600;

interface Recorded {
  readonly program: ReturnType<typeof generate>;
  readonly answers: readonly string[];
  readonly version: SimVersion;
}

async function record(program: Recorded["program"], args: readonly string[]): Promise<Recorded> {
  const real = await Real.start(args);
  const version = real.version.split(".").slice(0, 2).join(".") as SimVersion;
  const answers = await play(program, real).finally(() => real.stop());
  return { program, answers, version };
}

type Options = Omit<ConstructorParameters<typeof Simulated>[0], "version">;

async function differs({ program, answers, version }: Recorded, options: Options) {
  return difference(program, answers, await play(program, new Simulated({ version, ...options })));
}

/** The quirks without which the simulated etcd would have given the same answers. */
async function unnoticed(recorded: Recorded, options: Options): Promise<string[]> {
  const known = authQuirksOf(recorded.version);
  const found: string[] = [];
  for (const quirk of Object.keys(known) as (keyof AuthQuirks)[]) {
    const quirks = { [quirk]: !known[quirk] };
    if ((await differs(recorded, { ...options, quirks })) === undefined) found.push(quirk);
  }
  return found;
}

const rejected = ({ answers }: Recorded): number =>
  answers.filter((answer) => /^! |^etcdserver: /.test(answer)).length;

describe("320 random operations of six clients, while users, roles and tokens come and go", () => {
  test("are answered as by etcd with simple tokens, which use keeps alive; each quirk is noticed", async () => {
    const tokens = { kind: "simple", ttlMs: TTL_SECONDS * 1000 } as const;
    const program = generate({ seed: "simple 5", steps: 320, expiries: 2, idleMs: IDLE_MS });

    const recorded = await record(program, [`--auth-token-ttl=${TTL_SECONDS}`]);

    expect(await differs(recorded, { tokens })).toBeUndefined();
    // No simple token is ever stale.
    expect(await unnoticed(recorded, { tokens })).toEqual(["rootReadsLeases", "rootRevokesLeases"]);
    expect(rejected(recorded)).toBeLessThan(program.length / 2);
  }, 180_000);

  test("are answered as by etcd with JSON web tokens, which each edit makes stale", async () => {
    const tokens = { kind: "jwt", ttlMs: JWT_TTL_SECONDS * 1000 } as const;
    const program = generate({ seed: "jwt 23", steps: 320, expiries: 0, idleMs: 0 });
    const jwt = await makeJwtArgs({ ttlSeconds: JWT_TTL_SECONDS });

    const recorded = await record(program, jwt.args).finally(() => jwt.remove());

    expect(await differs(recorded, { tokens })).toBeUndefined();
    expect(recorded.answers.join("\n")).toContain("revision of auth store is old");
    // etcd 3.4 lists the keys of a lease for every user.
    const quirks = authQuirksOf(recorded.version);
    const same = await unnoticed(recorded, { tokens });
    expect(same).not.toContain("rootRevokesLeases");
    expect(same.includes("rootReadsLeases")).toBe(quirks.everybodyReadsLeases);
  }, 180_000);
});
