import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import { checkConnect } from "../../../src/base/options/connect.js";
import { memberOf } from "../../../src/etcd/transport.js";
import { EtcdClient } from "../../../src/etcd/client.js";
import { WatchHub } from "../../../src/etcd/watch-hub.js";
import { systemClock as clock } from "../../../src/base/util/clock.js";
import { Timers } from "../../../src/base/util/timers.js";
import { type EtcdCluster, type EtcdMember, startEtcd } from "../../support/etcd/etcd.js";
import { meter } from "../../support/fixtures/spent.js";
import { startTcpProxy, type TcpProxy } from "../../support/proxies/tcp-proxy.js";

const WATCHES = 10_000;
/** About 1,000 on each. */
const STREAMS = 10;
/** Per transaction: etcd allows 128. */
const OPERATIONS = 100;
const KEYS = Array.from({ length: WATCHES }, (_, n) => `bulk/${n}`).sort();

type What = "created" | "deleted";

/** Watches every key for deletions, and again whenever a watch has to move. */
class Owners {
  readonly told: Record<What, string[]> = { created: [], deleted: [] };
  #look = (): void => {};

  constructor(private readonly hub: WatchHub) {
    for (const key of KEYS) this.#watch(key);
  }

  /** Resolves when `what` has been reported once more for each watch, with the sorted keys. */
  async next(what: What): Promise<string[]> {
    const keys = this.told[what];
    await new Promise<void>((resolve) => {
      this.#look = () => keys.length >= WATCHES && resolve();
      this.#look();
    });
    return keys.splice(0).sort();
  }

  #watch(key: string): void {
    const tell = (what: What): void => {
      this.told[what].push(key);
      this.#look();
    };
    const listener = {
      created: () => tell("created"),
      events: () => tell("deleted"),
      interrupted: () => this.#watch(key),
      refused: (error: Error) => expect.unreachable(error.message),
    };
    this.hub.watch({ key, events: "DELETE" }, listener);
  }
}

/** The longest turn of the event loop in CPU time, which other processes on the machine do not extend. */
function longestTurn() {
  let longest = 0;
  let before = process.cpuUsage();
  const timer = setInterval(() => {
    const { user, system } = process.cpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
    before = process.cpuUsage();
  }, 1);
  return { ms: () => longest, stop: () => clearInterval(timer) };
}

function hubOver(endpoint: string) {
  const checked = checkConnect({ hosts: endpoint });
  const setting = { token: () => undefined, pingMs: 6000 };
  const connect = (host: string) => memberOf(host, setting, { options: checked, clock });
  const client = new EtcdClient(checked, clock, connect);
  return { members: client, hub: new WatchHub(client, clock, new Timers(clock, true)) };
}

const base64 = (text: string) => Buffer.from(text).toString("base64");

/**
 * In many transactions: after one with 10,000 deletions, etcd 3.4 takes eight times as long for each watch that it
 * creates.
 */
async function changeAll(member: EtcdMember, change: "request_put" | "request_delete_range"): Promise<void> {
  for (let n = 0; n < WATCHES; n += OPERATIONS) {
    const operations = KEYS.slice(n, n + OPERATIONS).map((key) => ({ [change]: { key: base64(key) } }));
    await member.gateway("/v3/kv/txn", { success: operations });
  }
}

interface Round {
  readonly created: string[];
  readonly deleted: string[];
  /** Messages that etcd has read from the streams. */
  readonly messages: number | undefined;
  readonly streams: number | undefined;
}

describe("10,000 watches of one process", () => {
  let etcd: EtcdCluster;
  /** One round per connection: it is established, and in the end it is cut. */
  const rounds: Round[] = [];
  const turn = longestTurn();
  const end: (() => unknown)[] = [turn.stop];

  const sum = async (of: "watch_stream" | "watcher") =>
    (await etcd.member.metrics()).get(`etcd_debugging_mvcc_${of}_total`);

  async function round(owners: Owners, proxy: TcpProxy): Promise<Round> {
    const counted = await meter(etcd.member);
    await proxy.mode("pass");
    const created = await owners.next("created");
    const { Watch: messages } = await counted.lap({ Watch: WATCHES });
    const streams = await sum("watch_stream");
    await changeAll(etcd.member, "request_put");
    await changeAll(etcd.member, "request_delete_range");
    const deleted = await owners.next("deleted");
    await proxy.mode("refuse");
    await vi.waitUntil(async () => (await sum("watcher")) === 0, { timeout: 10_000 });
    return { created, deleted, messages, streams };
  }

  beforeAll(async () => {
    etcd = await startEtcd();
    const proxy = await startTcpProxy({ port: etcd.member.clientPort });
    const { members: client, hub } = hubOver(proxy.endpoint);
    end.push(
      () => hub.close(),
      () => client.close(),
      () => proxy.stop(),
      () => etcd.stop(),
    );
    await proxy.mode("refuse");
    const owners = new Owners(hub);
    for (let n = 0; n < 2; n++) rounds.push(await round(owners, proxy));
  }, 60_000);
  afterAll(async () => {
    for (const stop of end) await stop();
  });

  it("are created by one message each, on ten streams", () => {
    expect(rounds[0]).toMatchObject({ created: KEYS, messages: WATCHES, streams: STREAMS });
  });

  it("are created again, by one message each, when their connection was cut and etcd is back", () => {
    expect(rounds[1]).toMatchObject({ created: KEYS, messages: WATCHES, streams: STREAMS });
  });

  it.each([
    ["from the first", 0],
    ["also after the cut", 1],
  ])("each tell the deletion of their key, %s", (_, n) => {
    expect(rounds[n]?.deleted).toEqual(KEYS);
  });

  it("never keep the event loop for as long as a second", () => {
    console.log(`longest turn of the event loop: ${turn.ms().toFixed(0)} ms`);
    expect(turn.ms()).toBeLessThan(1000);
  });
});
