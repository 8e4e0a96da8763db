import { delayedBy, MARKS } from "../../../src/keys.js";
import type { Run, ServerEvent } from "./history.js";

const MEMBERS = "/members/";

/**
 * Delay keys have the place in the queue of their entries, and are no entries; nor are the keys of a group's members, and the marks of
 * `once`.
 */
export function splitEvents(
  all: readonly ServerEvent[],
): Required<Pick<Run, "server" | "delayKeys" | "memberKeys" | "marks">> {
  const isMember = ({ key }: ServerEvent): boolean => key.includes(MEMBERS);
  const isMark = ({ key }: ServerEvent): boolean => key.startsWith(MARKS);
  const memberKeys = all.filter(isMember);
  const marks = all.filter(isMark);
  const none = memberKeys.length + marks.length === 0;
  const events = none ? all : all.filter((event) => !isMember(event) && !isMark(event));
  const idOf = (key: string | undefined, create: bigint): string => `${create} ${key ?? ""}`;
  const put = new Set(events.map(({ key, create }) => idOf(key, create)));
  const isDelay = ({ key, create }: ServerEvent): boolean => put.has(idOf(delayedBy(key), create));
  return {
    server: events.filter((event) => !isDelay(event)),
    delayKeys: events.filter(isDelay),
    memberKeys,
    marks,
  };
}
