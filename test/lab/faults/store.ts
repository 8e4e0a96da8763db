import { encode, endOf } from "../../support/clients/gateway-text.js";
import type { FaultKind, Field, Inflicted, Member } from "../runner/ground.js";
import { isNobodys } from "../runner/delay-keys.js";
import type { ServerEvent } from "../runner/history.js";
import { moment } from "../runner/schedule.js";

interface Answer {
  readonly header: { readonly revision: string; readonly member_id: string };
  readonly succeeded?: boolean;
}

/** Asks the leader; undefined if it did not answer in time, in which case it may still have executed the request. */
async function ask({ ground }: Field, path: string, body: object): Promise<Answer | undefined> {
  const leader = await ground.leader();
  return leader.gateway(path, body, { timeoutMs: 5000 }).then(
    (answer) => answer as Answer,
    () => undefined,
  );
}

function anyPlace({ observer, places, random }: Field): ServerEvent | undefined {
  const living = observer.puts(places).filter((place) => !isNobodys(place));
  return living.length > 0 ? random.pick(living) : undefined;
}

/** Like an administrator who looks first and then deletes by hand: never a younger place under the same key. */
const deleteKey: FaultKind = {
  name: "delete-key",
  effect: "takes-place",
  weight: 2,
  lasts: moment,
  async inflict(field) {
    const place = anyPlace(field);
    if (place === undefined) return undefined;
    const key = encode(place.key);
    const compare = [{ key, target: "CREATE", result: "EQUAL", create_revision: String(place.create) }];
    const success = [{ request_delete_range: { key } }];
    const answer = await ask(field, "/v3/kv/txn", { compare, success });
    if (answer?.succeeded !== true && answer !== undefined) return undefined;
    return taken(place.key, answer);
  },
};

/** As `etcdctl del --prefix` does: all keys beside a place, in one revision, if each of them has a lease. */
const purge: FaultKind = {
  name: "purge",
  effect: "takes-place",
  lasts: moment,
  async inflict(field) {
    const place = anyPlace(field);
    if (place === undefined) return undefined;
    const folder = place.key.slice(0, place.key.lastIndexOf("/") + 1);
    const range = { key: encode(folder), range_end: encode(endOf(folder)) };
    const compare = [{ ...range, target: "LEASE", result: "GREATER", lease: "0" }];
    const answer = await ask(field, "/v3/kv/txn", { compare, success: [{ request_delete_range: range }] });
    if (answer?.succeeded !== true && answer !== undefined) return undefined;
    return taken(folder, answer);
  },
};

const revokeLease: FaultKind = {
  name: "revoke-lease",
  effect: "takes-place",
  lasts: moment,
  async inflict(field) {
    const place = anyPlace(field);
    if (place === undefined) return undefined;
    const answer = await ask(field, "/v3/lease/revoke", { ID: BigInt(`0x${place.lease}`).toString() });
    return taken(place.lease, answer);
  },
};

const taken = (target: string, answer: Answer | undefined): Inflicted => ({
  target,
  took: answer === undefined ? [] : [BigInt(answer.header.revision)],
});

/** Up to what the observer has seen, so that the observer itself misses nothing. */
const compact: FaultKind = {
  name: "compact",
  effect: "hinders",
  lasts: moment,
  async inflict(field) {
    const { revision } = field.observer;
    await ask(field, "/v3/kv/compaction", { revision: String(revision) });
    return { target: String(revision) };
  },
};

const defrag: FaultKind = {
  name: "defrag",
  effect: "hinders",
  lasts: moment,
  async inflict({ ground, random }) {
    const member = random.pick(ground.members);
    await member.gateway("/v3/maintenance/defragment", {}, { timeoutMs: 10_000 }).catch(() => undefined);
    return { target: member.name };
  },
};

/** The alarm that etcd raises when its quota is exceeded: puts and grants are refused; everything else continues. */
const quota: FaultKind = {
  name: "quota",
  effect: "hinders",
  refuses: "cluster",
  async inflict(field) {
    const { header } = (await field.ground.leader().then(status)) ?? {};
    if (header === undefined) return undefined;
    const alarm = { memberID: header.member_id, alarm: "NOSPACE" };
    await ask(field, "/v3/maintenance/alarm", { ...alarm, action: "ACTIVATE" });
    const heal = async () => {
      await untilAnswered(() => ask(field, "/v3/maintenance/alarm", { ...alarm, action: "DEACTIVATE" }));
      await untilAnswered(() => ask(field, "/v3/kv/put", { key: encode("quota/over"), value: "" }));
      await Promise.all(field.ground.members.map(commit));
    };
    return { target: "all", heal };
  },
};

/**
 * A write that is on disk after the end of the alarm. etcd 3.4 (seen on 3.4.23, not on 3.5.16 and 3.6.16) records with
 * each write how far its log has been applied, but not with an alarm: if it is killed before the next write, it
 * restarts before the end of the alarm, without the alarm, and so writes what it had refused. From then on its data
 * differs from its peers'.
 */
async function commit(member: Member): Promise<void> {
  if (!member.running) return;
  const asked = async (path: string, body: object) =>
    member.gateway(path, body, { timeoutMs: 5000 }).then(
      (answer) => answer as Answer,
      () => undefined,
    );
  // A quorum read waits until the member has applied the write.
  await untilAnswered(() => asked("/v3/kv/range", { key: encode("quota/over") }));
  await untilAnswered(() => asked("/v3/maintenance/defragment", {}));
}

const status = (member: Member) =>
  member.gateway("/v3/maintenance/status", {}).then(
    (answer) => answer as Answer,
    () => undefined,
  );

async function untilAnswered(call: () => Promise<Answer | undefined>): Promise<void> {
  for (let attempt = 0; attempt < 20; attempt++) if ((await call()) !== undefined) return;
  throw new Error("no answer after 20 attempts");
}

/** A leader that steps down gracefully. */
export const moveLeader: FaultKind = {
  name: "move-leader",
  effect: "hinders",
  lasts: moment,
  async inflict(field) {
    const { ground, random } = field;
    const leader = await ground.leader();
    const target = await status(random.pick(ground.members.filter((member) => member !== leader)));
    if (target === undefined) return undefined;
    await ask(field, "/v3/maintenance/transfer-leadership", { targetID: target.header.member_id });
    return { target: leader.name };
  },
};

export const storeFaults: readonly FaultKind[] = [deleteKey, purge, revokeLease, compact, defrag, quota];
