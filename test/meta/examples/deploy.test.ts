// examples/deploy: the manifests' commands, environment, probes and times, on processes of this machine in place of pods.
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { etcdEnv, findEtcd } from "../../support/etcd/etcd-find.js";
import { buildPackage, Examples } from "../../support/fixtures/examples.js";
import { freePorts } from "../../support/servers/ports.js";
import { ServerProcess } from "../../support/servers/server-process.js";

interface Probe {
  readonly httpGet: { readonly path: string };
}

interface Container {
  readonly command: readonly string[];
  readonly env: readonly { readonly name: string; readonly value?: string }[];
  readonly readinessProbe: Probe;
  readonly livenessProbe: Probe;
  readonly lifecycle?: { readonly preStop: { readonly exec: { readonly command: readonly string[] } } };
}

interface Workload {
  readonly kind: string;
  readonly spec: {
    readonly replicas: number;
    readonly template: {
      readonly spec: {
        readonly terminationGracePeriodSeconds: number;
        readonly containers: readonly [Container];
      };
    };
  };
}

interface Compose {
  readonly services: {
    readonly worker: {
      readonly stop_grace_period: string;
      readonly environment: Readonly<Record<string, string>>;
    };
  };
}

const FOLDER = path.resolve("examples/deploy");
const textOf = (file: string) => readFile(path.join(FOLDER, file), "utf8");

async function workloadOf(file: string, kind: string) {
  const documents = parseAllDocuments(await textOf(`kubernetes/${file}`)).map((it) => it.toJS() as Workload);
  const { spec } = documents.find((it) => it.kind === kind)!;
  const pod = spec.template.spec;
  return { replicas: spec.replicas, pod, container: pod.containers[0] };
}

const valueOf = ({ env }: Container, name: string) => env.find((it) => it.name === name)?.value ?? "";

// The manifests' own minor version: the probes came with 3.6.
const etcd = await findEtcd({ version: "3.6" }).catch(() => undefined);
if (!etcd) console.log("not run: this machine has no etcd 3.6");

let folder: string;
/** By the port in the pod: what each member has on this machine. */
let ports: Readonly<Record<string, readonly number[]>>;
const members: ServerProcess[] = [];

/** With the addresses of this machine in place of those of the pods. */
const onThisMachine = (text: string): string =>
  text.replace(
    /etcd-(\d)\.etcd:(\d+)/g,
    (_, n: string, port: string) => `127.0.0.1:${ports[port]![Number(n)]}`,
  );

/** What the pods get from the manifest, without what each has of its own. */
const envOf = ({ env }: Container) =>
  Object.fromEntries(
    env.map(({ name, value = "" }) => [
      name,
      onThisMachine(value).replace("/etc/worker/tls", path.join(folder, "tls")),
    ]),
  );

beforeAll(async () => {
  if (!etcd) return;
  buildPackage();
  folder = await mkdtemp(path.join(os.tmpdir(), "leasehold-deploy-"));
  const script = path.join(FOLDER, "kubernetes/certificates.sh");
  await promisify(execFile)("sh", [script, path.join(folder, "tls"), "IP:127.0.0.1"]);

  const { replicas, container } = await workloadOf("etcd.yaml", "StatefulSet");
  const free = await freePorts(3 * replicas);
  const names = ["2379", "2380", "2381"];
  ports = Object.fromEntries(names.map((name, n) => [name, free.slice(n * replicas, (n + 1) * replicas)]));
  for (let n = 0; n < replicas; n++) {
    const args = container.command.slice(1).map((arg) =>
      onThisMachine(arg.replaceAll("$(POD_NAME)", `etcd-${n}`))
        .replace(/0\.0\.0\.0:(\d+)/, (_, port: string) => `127.0.0.1:${ports[port]![n]}`)
        .replace("/var/lib/etcd/data", path.join(folder, `data-${n}`))
        .replace("/etc/etcd/tls", path.join(folder, "tls")),
    );
    const member = new ServerProcess({
      title: `etcd-${n}`,
      command: [etcd.etcd, ...args],
      env: etcdEnv(),
      ready: /serving client traffic/,
      answers: async () =>
        (await fetch(`http://127.0.0.1:${ports["2381"]![n]}/readyz`)).ok ? "" : "not ready",
      tellGuardian: () => undefined,
    });
    members.push(member);
  }
  await Promise.all(members.map((member) => member.start()));
}, 150_000);

afterAll(async () => {
  await Promise.all(members.filter(({ running }) => running).map((member) => member.kill()));
  if (folder) await rm(folder, { recursive: true, force: true });
});

describe.runIf(etcd)("examples/deploy", { timeout: 60_000 }, () => {
  test("etcd.yaml's probes pass on its members", async () => {
    const { container } = await workloadOf("etcd.yaml", "StatefulSet");
    for (const { httpGet } of [container.readinessProbe, container.livenessProbe])
      for (const port of ports["2381"]!)
        expect((await fetch(`http://127.0.0.1:${port}${httpGet.path}`)).status).toBe(200);
  });

  test("worker.yaml's replicas are ready, one works, and SIGTERM hands its work over at once", async () => {
    const { container } = await workloadOf("worker.yaml", "Deployment");
    const env = envOf(container);
    await using examples = new Examples([], env);
    const first = await examples.serve("deploy/worker.js");
    await first.program.says("working under fence");
    const second = await examples.serve("deploy/worker.js");
    for (const { url } of [first, second])
      for (const { httpGet } of [container.readinessProbe, container.livenessProbe])
        await expect.poll(async () => (await fetch(`${url}${httpGet.path}`)).status).toBe(200);

    first.program.signal("SIGTERM");
    await second.program.says("working under fence");
    const { code, stdout } = await first.program.ended;
    expect(code).toBe(0);
    expect(stdout).toContain("stopped");
    second.program.signal("SIGTERM");
    expect((await second.program.ended).code).toBe(0);
  });

  test("shards.yaml's replicas are ready and share the shards, and SIGTERM hands those of one over at once", async () => {
    const { container } = await workloadOf("shards.yaml", "StatefulSet");
    await using examples = new Examples([], envOf(container));
    const [, file = ""] = container.command;
    const pod = (POD_NAME: string) => examples.serve(`deploy/${file}`, { POD_NAME });
    const [first, second] = await Promise.all([pod("shards-0"), pod("shards-1")]);
    await Promise.all([first, second].map(({ program }) => program.says("under fence")));
    for (const { url } of [first, second])
      for (const { httpGet } of [container.readinessProbe, container.livenessProbe])
        await expect.poll(async () => (await fetch(`${url}${httpGet.path}`)).status).toBe(200);

    first.program.signal("SIGTERM");
    const { code, stdout } = await first.program.ended;
    expect(code).toBe(0);
    expect(stdout).toContain("stopped");
    for (let shard = 0; shard < 64; shard++) await second.program.says(`shard ${shard} under fence`);
    second.program.signal("SIGTERM");
    expect((await second.program.ended).code).toBe(0);
  });

  test("the grace is longer than what shards.js takes of it", async () => {
    const { pod, container } = await workloadOf("shards.yaml", "StatefulSet");
    const drainSeconds = Number(valueOf(container, "DRAIN_MS")) / 1_000;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(drainSeconds + 1);
  });

  test("the grace is longer than what worker.js takes of it", async () => {
    const { pod, container } = await workloadOf("worker.yaml", "Deployment");
    const preStopSeconds = Number(container.lifecycle?.preStop.exec.command[1]);
    const drainSeconds = Number(valueOf(container, "DRAIN_MS")) / 1_000;
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(preStopSeconds + drainSeconds + 1);

    const { worker } = (parse(await textOf("compose.yaml")) as Compose).services;
    const graceSeconds = Number.parseInt(worker.stop_grace_period, 10);
    expect(graceSeconds).toBeGreaterThan(Number(worker.environment["DRAIN_MS"]) / 1_000 + 1);
  });
});
