// One lock and release after the other, for the profiler: `node one-after-the-other.js URL-OF-BUILD HOST COUNT [TRANSPORT]`;
// prints a line of JSON. It is JavaScript because tsx would be in the profile.
const WARM = 2000;

const [entry = "", host = "", count = "", transport] = process.argv.slice(2);
const leasehold = /** @type {typeof import("../../src/index.js")} */ (await import(entry));
const options = transport === undefined ? {} : { transport: /** @type {"etcd3"} */ (transport) };
const cluster = leasehold.connect({ hosts: host, ...options });
const session = await leasehold.Session.open(cluster, { ttlSeconds: 60 });
const mutex = new leasehold.Mutex(session, "profile");

/** @param {number} times */
async function lockAndRelease(times) {
  for (let n = 0; n < times; n++) await (await mutex.lock()).release();
}

await lockAndRelease(WARM);
const before = process.cpuUsage();
const begun = performance.now();
await lockAndRelease(Number(count));
const micros = (performance.now() - begun) * 1000;
const { user, system } = process.cpuUsage(before);
console.log(JSON.stringify({ micros: micros / Number(count), cpu: (user + system) / Number(count) }));
await cluster.close();
