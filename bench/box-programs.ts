import { connect, Mutex, RwLock, Semaphore, Election, lockAll, type Cluster } from "../src/index.js";
import { memoryEtcd, startEtcd, type MemoryEtcd, type TestEtcd } from "../src/testing/start.js";
import { Random } from "../src/memory/random.js";
const sleep = (ms: number) => new Promise((r) => setTimeout(r, ms));
interface World { etcd: TestEtcd; pass(ms: number): Promise<void>; prefix: string }
interface Call { id: string; abort: AbortController; hold?: any; over?: boolean }
async function run(seed: number, world: World): Promise<string[]> {
  const random = new Random(`program ${seed}`);
  const { etcd, pass } = world;
  const clients: Cluster[] = [0, 1, 2].map(() => connect({ hosts: etcd.hosts, prefix: world.prefix, session: { ttlSeconds: 30 } }));
  for (const c of clients) await c.session();
  const out: string[] = [];
  let step: string[] = [];
  const calls: Call[] = [];
  const until = async (is: () => boolean, ms = 15_000) => { for (let t = 0; t < ms && !is(); t += 20) await pass(20); };
  const settle = async <T>(promise: Promise<T>): Promise<T> => { let over = false; promise.then(() => (over = true), () => (over = true)); await Promise.resolve(); await until(() => over); if (!over) console.log("NOT SETTLED", step); return promise; };
  const quiet = async () => { await pass(40); };
  const take = (client: Cluster, kind: string, name: string, signal: AbortSignal): Promise<any> => {
    switch (kind) {
      case "mutex": return new Mutex(client, `m/${name}`).lock({ signal });
      case "read": return new RwLock(client, `rw/${name}`).readLock({ signal });
      case "write": return new RwLock(client, `rw/${name}`).writeLock({ signal });
      case "permit": return new Semaphore(client, `s/${name}`, 2).acquire({ signal });
      case "all": return lockAll(client, [`m/a`, `m/b`], { signal });
      default: return new Election(client, `e/${name}`).campaign(name, { signal });
    }
  };
  for (let n = 0; n < 40; n++) {
    step = [];
    const here = step;
    const log = (line: string) => step.push(line);
    const held = calls.filter((c) => c.hold && !c.over);
    const waiting = calls.filter((c) => !c.hold && !c.over);
    const draw = random.next();
    const which = random.int(3), name = random.pick(["a", "b"]), kind = random.pick(["mutex", "mutex", "read", "write", "permit", "all", "election"]);
    if (draw < 0.4 || (held.length === 0 && waiting.length === 0)) {
      const call: Call = { id: `${n} ${kind} ${kind === "all" ? "" : name} of ${which}`, abort: new AbortController() };
      calls.push(call);
      log(`${call.id} called`);
      take(clients[which]!, kind, name, call.abort.signal).then((hold) => {
        call.hold = hold;
        log(`${call.id} granted`);
        hold.signal.addEventListener("abort", () => { call.over = true; step.push(`${call.id} ended ${(hold.signal.reason as any).loss ?? hold.signal.reason.code}`); });
      }, (error) => { call.over = true; step.push(`${call.id} rejected ${error.code ?? error.name}`); });
    } else if (draw < 0.65 && held.length) {
      const call = random.pick(held); log(`release ${call.id}`);
      await settle(call.hold.release ? call.hold.release() : call.hold.resign());
    } else if (draw < 0.75 && waiting.length) {
      const call = random.pick(waiting); log(`abort ${call.id}`); call.abort.abort();
    } else if (draw < 0.83 && held.length) {
      const call = random.pick(held); log(`lose ${call.id}`);
      await etcd.lose(call.hold);
    } else if (draw < 0.88) {
      const session = await settle(clients[which]!.session()); log(`expire ${which}`);
      await etcd.expire(session); await until(() => session.signal.aborted);
    } else if (draw < 0.93) { log("cut"); await etcd.cut(undefined, { how: "reset" }); await pass(200); await etcd.heal(); await pass(1500); }
    else if (draw < 0.96) { log("restart"); await etcd.kill(); await etcd.restart(); await pass(2500); }
    else { log("pass"); await pass(1200); }
    await quiet();
    out.push([...here.slice(0, 1), ...here.slice(1).sort()].join("; "));
  }
  step = [];
  const keys = (await etcd.keys(world.prefix)).length;
  out.push(`keys ${keys}`);
  for (const c of calls) if (!c.over && !c.hold) c.abort.abort();
  await Promise.all(clients.map((c) => c.close({ drainMs: 0 })));
  out.push(`after ${(await etcd.keys(world.prefix)).length}`);
  return out;
}
const members = Number(process.argv[4] ?? 1) as 1 | 3;
const real = await startEtcd({ members });
let bad = 0;
for (let seed = Number(process.argv[2] ?? 1), end = seed + Number(process.argv[3] ?? 5); seed < end; seed++) {
  const virtual: MemoryEtcd = await memoryEtcd({ time: "virtual", members });
  const t0 = performance.now();
  const b = await run(seed, { etcd: virtual, pass: (ms) => virtual.advance(ms), prefix: "p/" });
  const t1 = performance.now();
  const a = await run(seed, { etcd: real, pass: (ms) => sleep(ms) as Promise<void>, prefix: `p${seed}/` });
  const t2 = performance.now();
  await virtual.stop();
  const at = a.findIndex((line, n) => line !== b[n]);
  console.log(seed, at === -1 ? "same" : "DIFFERENT at " + at, `memory ${Math.round(t1 - t0)} ms, real ${Math.round(t2 - t1)} ms`);
  if (at !== -1) { bad++; console.log("  before:", a.slice(Math.max(0, at - 4), at)); console.log("  real:  ", a.slice(at, at + 2)); console.log("  memory:", b.slice(at, at + 2)); }
}
console.log("different:", bad);
await real.stop();
process.exit();
