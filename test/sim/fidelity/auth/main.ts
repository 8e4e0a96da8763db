// node --import tsx test/sim/fidelity/auth/main.ts --version 3.6 [--tokens jwt] [--programs 5] [--steps 300] [--seed 1]
import { parseArgs } from "node:util";
import { makeJwtArgs } from "../../../support/fixtures/jwt.js";
import type { SimVersion } from "../../../../src/testing/memory/protocol.js";
import { authQuirksOf, type AuthQuirks } from "../../../../src/testing/memory/quirks.js";
import { generate } from "./generate.js";
import { difference, play } from "./play.js";
import { Real } from "./real.js";
import { Simulated } from "./simulated.js";

const { values } = parseArgs({
  options: {
    version: { type: "string" },
    tokens: { type: "string", default: "simple" },
    programs: { type: "string", default: "5" },
    steps: { type: "string", default: "300" },
    seed: { type: "string", default: "1" },
    /** Tokens expire in so many places of each program, which takes 7 s. */
    expiries: { type: "string", default: "2" },
  },
});

if (values.version !== undefined) process.env["LEASEHOLD_ETCD_VERSION"] = values.version;
const kind = values.tokens === "jwt" ? "jwt" : "simple";
const ttlSeconds = kind === "jwt" ? 600 : 5;
const jwt = kind === "jwt" ? await makeJwtArgs({ ttlSeconds }) : undefined;
const tokens = { kind, ttlMs: ttlSeconds * 1000 } as const;
const noticed = new Set<string>();
let rejected = 0;
let total = 0;

for (let n = 0; n < Number(values.programs); n++) {
  const expiries = kind === "jwt" ? 0 : Number(values.expiries);
  const steps = Number(values.steps);
  const program = generate({ seed: `${values.seed}/${n}`, steps, expiries, idleMs: 2400 });
  const real = await Real.start(jwt?.args ?? [`--auth-token-ttl=${ttlSeconds}`]);
  const version = real.version.split(".").slice(0, 2).join(".") as SimVersion;
  const answers = await play(program, real).finally(() => real.stop());
  total += program.length;
  rejected += answers.filter((answer) => /^!|^etcdserver/.test(answer)).length;
  const found = difference(program, answers, await play(program, new Simulated({ version, tokens })));
  if (found !== undefined) {
    console.log(`program ${values.seed}/${n}, etcd ${real.version}, differs:\n${found}`);
    process.exitCode = 1;
    continue;
  }
  const known = authQuirksOf(version);
  for (const quirk of Object.keys(known) as (keyof AuthQuirks)[]) {
    const quirks = { [quirk]: !known[quirk] };
    const other = await play(program, new Simulated({ version, tokens, quirks }));
    if (difference(program, answers, other) !== undefined) noticed.add(quirk);
  }
}
await jwt?.remove();
console.log(
  `${total} steps (${rejected} rejected); a run differs without: ${[...noticed].sort().join(", ")}`,
);
