import { type Cluster, EtcdRefusedError, LeaseholdError } from "../../../index.js";
import { parseEntryKey } from "../../../keys.js";
import { type Asking, readPages } from "../../../lock/queue/contenders.js";
import { pathIn } from "../../../observe/board-queues.js";
import { ask } from "../../../observe/inspect.js";
import { prefixRange } from "../../../observe/list.js";
import { type Exam, excerpt, type Finding, ok, skip, warn } from "./exam.js";

/** etcd may have millions of keys that are no locks. */
const PAGES = 20;
const KEYS = 1000;

/** Nested names among those that start with `prefix` and have entries: a call on the upper one is rejected. Keys only are read. */
export async function namesFinding(
  { timeoutMs, signal }: Exam,
  cluster: Cluster,
  prefix: string,
): Promise<Finding> {
  const where = prefix === "" ? "" : ` under ${excerpt(prefix)}`;
  try {
    const { names, all } = await namesUnder(cluster, prefix, { timeoutMs, signal });
    const nested = [...names].flatMap((name) => aboveOf(name, names).map((above) => [name, above] as const));
    const part = all ? "" : `, among the first ${PAGES * KEYS} keys`;
    if (nested.length === 0)
      return ok("names", `no lock in use${where} has a name below that of another one${part}`);
    return warn(
      "names",
      nestedText(nested) + part,
      "rename one of each: while the lower one is held or waited for, calls for the upper one are rejected with KIND_MISMATCH",
    );
  } catch (error) {
    if (!(error instanceof LeaseholdError)) throw error;
    const isDenied = error instanceof EtcdRefusedError && error.reason === "permission";
    const why = isDenied ? `this user may not read all keys${where}: give a PREFIX` : error.message;
    return skip("names", `did not look for nested names: ${excerpt(why, 400)}`);
  }
}

interface Names {
  readonly names: ReadonlySet<string>;
  /** Every key was read. */
  readonly all: boolean;
}

/** The keys that may be entries, by name, up to `TRIED` of each: etcd 3.7 gives no lease with a key alone. */
type Candidates = Map<string, Buffer[]>;
const TRIED = 4;
const ENTRY = /\/[1-9a-f][0-9a-f]{0,15}(?:-[1-9]\d*)?$/;

async function namesUnder(
  cluster: Cluster,
  prefix: string,
  wait: { readonly timeoutMs: number; readonly signal: AbortSignal },
): Promise<Names> {
  return ask(cluster, { what: "look for nested names", wait }, async (asking) => {
    const found: Candidates = new Map();
    let pages = 0;
    let all = true;
    const keys = readPages(asking, { keysOnly: true, ...prefixRange(prefix) }, () => KEYS);
    for await (const { kvs, more } of keys) {
      for (const { key } of kvs) {
        const name = ENTRY.test(key.toString("latin1", Math.max(0, key.length - 40)))
          ? pathIn(key, "")
          : undefined;
        if (name === undefined) continue;
        const tried = found.get(name) ?? [];
        if (tried.length < TRIED) found.set(name, [...tried, key]);
      }
      if (more && ++pages === PAGES) all = false;
      if (!more || !all) break;
    }
    const names = new Set<string>();
    for (const name of nestedIn(found)) if (await isInUse(asking, found.get(name) ?? [])) names.add(name);
    return { names, all };
  });
}

/** Those that are below another one, or above. */
function nestedIn(found: Candidates): ReadonlySet<string> {
  const all = new Set(found.keys());
  return new Set(
    [...all].flatMap((name) => {
      const above = aboveOf(name, all);
      return above.length > 0 ? [name, ...above] : [];
    }),
  );
}

/** Whether one of these keys belongs to a lease, as each entry does. */
async function isInUse({ services, policy }: Asking, keys: readonly Buffer[]): Promise<boolean> {
  const { ranges } = await services.client.ranges(
    keys.map((key) => ({ key })),
    policy,
  );
  return ranges.some(({ kvs }) => kvs.some(({ key, leaseId }) => parseEntryKey(key.toString(), leaseId)));
}

/** The names above a name that are among `names`. */
function aboveOf(name: string, names: ReadonlySet<string>): readonly string[] {
  const above: string[] = [];
  for (let end = name.lastIndexOf("/"); end > 0; end = name.lastIndexOf("/", end - 1))
    if (names.has(name.slice(0, end))) above.push(name.slice(0, end));
  return above;
}

const SHOWN = 3;

function nestedText(nested: readonly (readonly [name: string, above: string])[]): string {
  const shown = nested.slice(0, SHOWN).map(([name, above]) => `${excerpt(name)} is below ${excerpt(above)}`);
  const rest = nested.length > SHOWN ? `, and ${nested.length - SHOWN} more` : "";
  return `both are in use: ${shown.join(", ")}${rest}`;
}
