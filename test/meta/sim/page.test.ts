// The server of the simulation's page: what it streams, what it takes, and what it refuses.
import { request } from "node:http";
import { expect, it, onTestFinished } from "vitest";
import type { Frame, Hello, Started } from "../../sim/page/protocol.js";
import { PageServer } from "../../sim/page/server.js";

const QUERY = "seed=22&version=3.6&of=mutex&processes=3&lanes=1&names=1&ttl=5&faults=";

/** The server of a run, its orders, and the latest data of each event that it has streamed. */
async function setUp() {
  const server = await PageServer.start();
  onTestFinished(() => server.close());
  await server.table.start(QUERY);
  const abort = new AbortController();
  onTestFinished(() => abort.abort());
  const { body } = await fetch(`${server.url}events`, { signal: abort.signal });
  const latest: { hello?: Hello; started?: Started; frame?: Frame } = {};
  const read = async (): Promise<void> => {
    let text = "";
    for await (const chunk of body!.pipeThrough(new TextDecoderStream())) {
      const events = (text + chunk).split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) {
        const [, name = "", json = "null"] = /^event: (\w+)\ndata: (.+)$/.exec(event) ?? [];
        Object.assign(latest, { [name]: JSON.parse(json) as unknown });
      }
    }
  };
  void read().catch(() => {});
  const post = async (path: string, sent: unknown = {}, headers: Record<string, string> = {}) => {
    const response = await fetch(`${server.url}${path}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers },
      body: typeof sent === "string" ? sent : JSON.stringify(sent),
    });
    const answer = await response.text();
    return [response.status, answer && (JSON.parse(answer) as { error: string }).error];
  };
  await expect.poll(() => latest.frame).toBeDefined();
  return { server, latest, post, frame: () => latest.frame! };
}

it("the page steps a run, breaks and heals something, plays to the end, and starts another run", async () => {
  const { latest, post, frame } = await setUp();
  expect(latest.started).toMatchObject({ seed: "22", of: "mutex", processes: 3, faults: [] });
  expect(frame()).toMatchObject({ now: 0, playing: false, phase: "work", events: 0 });

  expect(await post("step")).toEqual([204, ""]);
  await expect.poll(() => frame().events).toBe(1);
  expect(await post("order", { order: "pause w1.0" })).toEqual([204, ""]);
  await expect.poll(() => frame().processes[1]?.state).toBe("paused");
  expect(await post("order", { order: "heal 1" })).toEqual([204, ""]);
  await expect.poll(() => frame().processes[1]?.state).toBe("alive");
  expect(frame().query).toMatch(/orders=\d+@[\d.]+\+pause\+w1\.0;\d+@[\d.]+\+heal\+1$/);

  await post("speed", { speed: 100_000, skipsQuiet: true });
  await post("play");
  await expect.poll(() => frame().judged, { timeout: 60_000 }).toBe(true);
  expect(frame()).toMatchObject({ phase: "over", broken: [] });
  expect(await post("order", { order: "kill w0.0" })).toEqual([400, expect.any(String)]);

  const query = "seed=3&mutant=unguarded-release";
  expect(await post("start", { query })).toEqual([204, ""]);
  await expect.poll(() => frame().query).toBe(query);
  expect(latest.started).toMatchObject({ seed: "3", mutant: "unguarded-release" });
}, 90_000);

it("the page refuses what it cannot do, orders of another page, and other hosts, and loads nothing from elsewhere", async () => {
  const { server, post } = await setUp();
  const bad: readonly (readonly [string, unknown])[] = [
    ["order", { order: "dance" }],
    ["order", { order: "kill w9.0" }],
    ["order", "{"],
    ["speed", { speed: -1 }],
    ["start", { query: "seed=1&processes=99" }],
    ["start", { query: "sead=1" }],
    ["search", { mutant: "none" }],
  ];
  for (const [path, body] of bad) expect(await post(path, body)).toEqual([400, expect.any(String)]);

  const foreign = await post("step", {}, { Origin: "http://example.com" });
  const plain = await post("step", "{}", { "Content-Type": "text/plain" });
  const rebound = await new Promise((resolve) => {
    request(server.url, { headers: { Host: "example.com" } }, ({ statusCode }) => resolve(statusCode)).end();
  });
  expect([foreign[0], plain[0], rebound]).toEqual([403, 403, 403]);

  for (const file of ["", "page.css", "sim.css", "sim.js"]) {
    const response = await fetch(server.url + file);
    expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
    expect(await response.text()).not.toMatch(/(src|href)="https?:|url\(/);
  }
});
