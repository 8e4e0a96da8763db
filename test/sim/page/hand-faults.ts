import type { SimFault, SimHit } from "../run/faults.js";
import { SIM_FAULTS } from "../run/faults.js";
import { moment } from "../../lab/runner/schedule.js";
import type { SimCrew } from "../run/sim-crew.js";
import { BadRequest, type Order } from "./orders.js";

/** A fault with one certain victim: as one of the planned ones, by whose description the lab's rules judge. */
const aimed = (name: string, hit: (crew: SimCrew) => SimHit | undefined): SimFault => ({
  ...faultOf(name),
  hit: ({ crew }) => hit(crew),
});

function faultOf(name: string): SimFault {
  const found = SIM_FAULTS.find((fault) => fault.name === name);
  if (found === undefined) throw new BadRequest(`There is no fault "${name}"`);
  return found;
}

/** It ends in the moment in which it begins. */
export const isMomentary = ({ lasts }: SimFault): boolean => lasts === moment;

/** The fault that an order inflicts. @throws {BadRequest} if it can hit nothing now */
export function handFault({ action, target }: Order, crew: SimCrew): SimFault {
  switch (action) {
    case "fault":
      return faultOf(target);
    case "pause":
      alive(target, crew);
      return aimed("pause-worker", () => {
        crew.pause(target);
        return { target, heal: () => crew.resume(target) };
      });
    case "kill":
      alive(target, crew, "paused");
      return aimed("kill-holder", () => {
        crew.kill(target);
        return { target, heal: () => crew.restart(target) };
      });
    case "cut":
      return cut(target, crew);
    case "delete":
    case "revoke":
      return taking(action, target, crew);
    case "heal":
      throw new BadRequest("A healing is no fault");
  }
}

function alive(p: string, crew: SimCrew, orElse?: "paused"): void {
  const n = crew.processes.indexOf(p);
  if (n === -1) throw new BadRequest(`There is no process ${p} now: there are ${crew.processes.join(", ")}`);
  const { clock } = crew.nodes[n]!;
  if (clock.killed) throw new BadRequest(`${p} is dead`);
  if (clock.paused && orElse !== "paused") throw new BadRequest(`${p} is paused already`);
}

function cut(target: string, crew: SimCrew): SimFault {
  const [, process = "", member = ""] = /^(\d+)>(\d+)$/.exec(target) ?? [];
  const [p, link] = [crew.processes[Number(process)], crew.nodes[Number(process)]?.links[Number(member)]];
  if (p === undefined || link === undefined)
    throw new BadRequest(`Expected a link such as "0>0", process and member by number; got "${target}"`);
  if (link.state !== "up") throw new BadRequest(`The link ${target} is not up: ${link.state}`);
  return aimed("link-cut", () => {
    link.set("cut");
    return { target: p, heal: () => link.set("up") };
  });
}

function taking(action: "delete" | "revoke", key: string, crew: SimCrew): SimFault {
  if (!crew.livingKeys().includes(key)) throw new BadRequest(`etcd has no key ${key}`);
  const lease = crew.leaseOf(key);
  const [fault, target] = action === "delete" ? ["delete-key", key] : ["revoke-lease", lease];
  return aimed(fault, () => {
    const revision = action === "delete" ? crew.deleteKey(key) : crew.revoke(lease);
    // Without a leader, etcd does not execute it.
    return revision === undefined ? undefined : { target: target, took: [revision] };
  });
}
