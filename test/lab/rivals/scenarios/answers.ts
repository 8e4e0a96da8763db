// The server has executed a request whose answer is lost.
import { takesPlace } from "../../../support/clients/request-shape.js";
import type { Client } from "../client.js";
import { dropAnswers } from "../faults.js";
import { EtcdGround } from "../grounds/etcd.js";
import { untilTrue, within } from "../patience.js";
import { PATIENCE_MS, TTL_MS, type Stage } from "../stage.js";
import type { Scenario } from "./scenario.js";

const TXN = "/etcdserverpb.KV/Txn";
/** The time limit of the client whose answer is lost. */
const ASK_MS = 1.5 * TTL_MS;

type How = "drop-answer" | "cut-answer";
/** Resolves when the server has granted the lock to the client whose answer is lost. */
interface Loss {
  readonly taken: Promise<unknown>;
  readonly heal: () => Promise<void>;
}

/** On etcd, only this answer is lost: the connection and so the renewals continue. */
async function loseOnEtcd(stage: Stage, client: Client, how: How): Promise<Loss> {
  const [proxy] = client.links.calls;
  if (proxy === undefined) throw new TypeError("Expected a ground that knows single calls");
  const rule = proxy.rule({ path: TXN, act: how, when: takesPlace, times: 1 });
  const breakage = { fault: how, effect: "hinders", hits: [client.p] } as const;
  const heal = await stage.inflict(breakage, () => () => proxy.remove(rule));
  return { taken: rule.answered(1), heal };
}

/** On Redis, all answers are lost, because it uses one connection for everything. */
async function loseOnRedis(stage: Stage, client: Client): Promise<Loss> {
  const heal = await dropAnswers(stage, client);
  const taken = untilTrue(PATIENCE_MS, async () => (await stage.ground.keys()).length > 0);
  return { taken, heal };
}

const losing =
  (how: How) =>
  async (stage: Stage): Promise<void> => {
    const [a, b] = await stage.start();
    const lose = stage.ground instanceof EtcdGround ? loseOnEtcd : loseOnRedis;
    const { taken, heal } = await lose(stage, a, how);
    const lost = stage.ask(a, { timeoutMs: ASK_MS });
    await within(PATIENCE_MS, taken);
    const next = stage.ask(b);

    if (how === "drop-answer") await within(ASK_MS + TTL_MS, lost.hold);
    await heal();

    await stage.serve([lost, next]);
  };

export const answerLost: Scenario = {
  name: "answer-lost",
  title: "the answer to the acquire never comes",
  calls: true,
  play: losing("drop-answer"),
};

export const answerCut: Scenario = {
  name: "answer-cut",
  title: "the connection breaks between the acquire and its answer",
  calls: true,
  play: losing("cut-answer"),
};
