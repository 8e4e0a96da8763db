import { BARRIERS, delayedBy, LATCHES, MARKS } from "../../../src/keys.js";
import type { Run, ServerEvent } from "./history.js";

const MEMBERS = "/members/";

/**
 * Delay keys have the place in the queue of their entries, and are no entries; nor are the keys of a group's members, the marks of
 * `once`, and the keys of latches and barriers.
 */
export function splitEvents(
  all: readonly ServerEvent[],
): Required<Pick<Run, "server" | "delayKeys" | "memberKeys" | "marks" | "meetingKeys">> {
  const isMember = ({ key }: ServerEvent): boolean => key.includes(MEMBERS);
  const isMark = ({ key }: ServerEvent): boolean => key.startsWith(MARKS);
  const memberKeys = all.filter(isMember);
  const marks = all.filter(isMark);
  const meetingKeys = all.filter(isMeeting);
  const none = memberKeys.length + marks.length + meetingKeys.length === 0;
  const events = none ? all : all.filter((event) => !isMember(event) && !isMark(event) && !isMeeting(event));
  const idOf = (key: string | undefined, create: bigint): string => `${create} ${key ?? ""}`;
  const put = new Set(events.map(({ key, create }) => idOf(key, create)));
  const isDelay = ({ key, create }: ServerEvent): boolean => put.has(idOf(delayedBy(key), create));
  return {
    server: events.filter((event) => !isDelay(event)),
    delayKeys: events.filter(isDelay),
    memberKeys,
    marks,
    meetingKeys,
  };
}

/** It belongs to no process, by design: an open double barrier, or a barrier that stays closed. */
export const isNobodys = (event: Pick<ServerEvent, "key" | "lease">): boolean =>
  event.lease === "0" && isMeeting(event);

/** Barriers are named so by the lanes of the lab. */
const isMeeting = ({ key }: Pick<ServerEvent, "key">): boolean =>
  key.startsWith(LATCHES) || key.startsWith(BARRIERS) || key.endsWith("/gate") || key.includes("/double/");
