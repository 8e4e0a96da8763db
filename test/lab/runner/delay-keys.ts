import { delayedBy } from "../../../src/keys.js";
import type { Run, ServerEvent } from "./history.js";

const MEMBERS = "/members/";

/** Delay keys have the place in the queue of their entries, and are no entries; nor are the keys of a group's members. */
export function splitEvents(
  all: readonly ServerEvent[],
): Required<Pick<Run, "server" | "delayKeys" | "memberKeys">> {
  const isMember = ({ key }: ServerEvent): boolean => key.includes(MEMBERS);
  const memberKeys = all.filter(isMember);
  const events = memberKeys.length === 0 ? all : all.filter((event) => !isMember(event));
  const idOf = (key: string | undefined, create: bigint): string => `${create} ${key ?? ""}`;
  const put = new Set(events.map(({ key, create }) => idOf(key, create)));
  const isDelay = ({ key, create }: ServerEvent): boolean => put.has(idOf(delayedBy(key), create));
  return { server: events.filter((event) => !isDelay(event)), delayKeys: events.filter(isDelay), memberKeys };
}
