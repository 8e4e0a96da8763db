// The server of the simulation's page: what it streams, what it takes, and what it refuses.
import { request } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Frame, Hello, Started, StoryLine } from "../../sim/page/protocol.js";
import { PageServer } from "../../sim/page/server.js";

const QUERY = "seed=22&version=3.6&of=mutex&processes=3&lanes=1&names=1&ttl=5&faults=";

let server: PageServer;
let stream: Stream;
beforeAll(async () => {
  server = await PageServer.start();
  await server.table.start(QUERY);
  stream = await Stream.open(server.url);
});
afterAll(() => {
  stream?.close();
  server?.close();
});

/** The latest data of each event. */
class Stream {
  readonly latest: { hello?: Hello; started?: Started; frame?: Frame; story?: StoryLine[] } = {};
  readonly lines: StoryLine[] = [];
  readonly #abort = new AbortController();

  static async open(url: string): Promise<Stream> {
    const stream = new Stream();
    const { body } = await fetch(`${url}events`, { signal: stream.#abort.signal });
    void stream.#read(body!).catch(() => {});
    return stream;
  }

  close(): void {
    this.#abort.abort();
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    let text = "";
    for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
      text += chunk;
      const events = text.split("\n\n");
      text = events.pop() ?? "";
      for (const event of events) this.#received(event);
    }
  }

  #received(event: string): void {
    const [, name = "", json = "null"] = /^event: (\w+)\ndata: (.+)$/.exec(event) ?? [];
    const data: unknown = JSON.parse(json);
    Object.assign(this.latest, { [name]: data });
    if (name === "started") this.lines.length = 0;
    if (name === "story") this.lines.push(...(data as StoryLine[]));
  }
}

async function post(path: string, body: unknown = {}, headers: Record<string, string> = {}) {
  const response = await fetch(`${server.url}${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
  const text = await response.text();
  return [response.status, text && (JSON.parse(text) as { error: string }).error];
}

const frame = (): Frame => stream.latest.frame!;

describe("the server of the page", () => {
  it("greets with the choices, the run and its state", async () => {
    await expect.poll(() => stream.latest.frame).toBeDefined();

    expect(stream.latest.hello?.faults.map(({ name }) => name)).toContain("pause-holder");
    expect(stream.latest.hello?.mutants.map(({ name }) => name)).toContain("unguarded-release");
    expect(stream.latest.started).toMatchObject({ seed: "22", of: "mutex", processes: 3, faults: [] });
    expect(frame()).toMatchObject({ now: 0, playing: false, phase: "work", events: 0 });
    expect(frame().processes.map(({ p, state }) => `${p} ${state}`)).toEqual([
      "w0.0 alive",
      "w1.0 alive",
      "w2.0 alive",
    ]);
  });

  it("runs one event for a step, and up to the next happening", async () => {
    expect(await post("step")).toEqual([204, ""]);
    await expect.poll(() => frame().events).toBe(1);
    expect(await post("step")).toEqual([204, ""]);
    await expect.poll(() => frame().events).toBe(2);
    expect(await post("next")).toEqual([204, ""]);
    await expect.poll(() => stream.lines.some(({ tone }) => tone === "good")).toBe(true);

    expect(frame().playing).toBe(false);
  });

  it("breaks something by hand, heals it, and shows the query that repeats both", async () => {
    expect(await post("order", { order: "pause w1.0" })).toEqual([204, ""]);
    await expect.poll(() => frame().processes[1]?.state).toBe("paused");
    expect(frame().afflictions).toEqual([{ order: 1, text: "pause w1.0" }]);
    expect(await post("order", { order: "heal 1" })).toEqual([204, ""]);
    await expect.poll(() => frame().processes[1]?.state).toBe("alive");

    expect(frame().query).toMatch(/orders=\d+@[\d.]+\+pause\+w1\.0;\d+@[\d.]+\+heal\+1$/);
    expect(stream.lines.map(({ text }) => text)).toContain("pause-worker hits w1.0");
  });

  it.each([
    ["order", { order: "dance" }, "Expected an order: one of fault, pause"],
    ["order", { order: "kill w9.0" }, "There is no process w9.0 now"],
    ["order", {}, 'Expected "order" to be a text'],
    ["order", "{", "Expected a JSON object"],
    ["speed", { speed: -1 }, "Expected a speed of 0.0001 to 100000"],
    ["start", { query: "seed=1&processes=99" }, "Expected processes to be a whole number from 1 to 6"],
    ["start", { query: "seed=1&mutant=none" }, "Expected a rule of the lab's table"],
    ["start", { query: "seed=1&orders=x" }, "Expected orders such as"],
    ["start", { query: "sead=1" }, "Expected one of seed, mutant"],
    ["search", { mutant: "none" }, 'The lab\'s table has no rule "none"'],
  ])("refuses a bad /%s %j", async (path, body, error) => {
    expect(await post(path, body)).toEqual([400, expect.stringContaining(error)]);
  });

  it("takes orders of its own page only", async () => {
    const foreign = await post("step", {}, { Origin: "http://example.com" });
    const plain = await post("step", "{}", { "Content-Type": "text/plain" });
    const rebound = await new Promise((resolve) => {
      request(server.url, { headers: { Host: "example.com" } }, ({ statusCode }) =>
        resolve(statusCode),
      ).end();
    });

    expect([foreign[0], plain[0], rebound]).toEqual([403, 403, 403]);
  });

  it("plays to the end, judges the whole run, and refuses to break what is over", async () => {
    await post("speed", { speed: 100_000, skipsQuiet: true });
    await post("play");
    await expect.poll(() => frame().phase, { timeout: 60_000 }).toBe("over");
    await expect.poll(() => frame().judged).toBe(true);

    expect(frame().broken).toEqual([]);
    expect(await post("order", { order: "kill w0.0" })).toEqual([
      400,
      "The work has ended: faults can no longer be injected",
    ]);
  }, 90_000);

  it("starts another run, with a sabotaged rule, in the place of the first", async () => {
    const query = "seed=3&mutant=unguarded-release";
    expect(await post("start", { query })).toEqual([204, ""]);
    await expect.poll(() => frame().query).toBe(query);

    expect(stream.latest.started).toMatchObject({ seed: "3", mutant: "unguarded-release" });
    expect(frame().events).toBe(0);
  });

  it("serves files that load nothing from elsewhere", async () => {
    for (const file of ["", "page.css", "sim.css", "sim.js"]) {
      const response = await fetch(server.url + file);
      expect(response.headers.get("content-security-policy")).toContain("default-src 'none'");
      expect(await response.text()).not.toMatch(/(src|href)="https?:|url\(/);
    }
    expect((await fetch(`${server.url}nothing`)).status).toBe(404);
  });
});
