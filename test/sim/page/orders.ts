/** What the page, or the command, cannot do as it was asked. */
export class BadRequest extends Error {}

const ACTIONS = ["fault", "pause", "kill", "cut", "delete", "revoke", "heal"] as const;
export type Action = (typeof ACTIONS)[number];

/**
 * Something that is broken by hand, or healed. The target: the name of a fault, a process, `process>member` by number, a key, or
 * the number of the order that is healed.
 */
export interface Order {
  readonly action: Action;
  readonly target: string;
}

/** An order with its place in the run: after so many events, at that virtual time. */
export interface PlacedOrder extends Order {
  readonly events: number;
  readonly ms: number;
}

/** Such as `kill w0.0`. @throws {BadRequest} */
export function parseOrder(text: string): Order {
  const [, name = "", target = ""] = /^(\w+) (\S+)$/.exec(text) ?? [];
  const action = ACTIONS.find((each) => each === name);
  if (action !== undefined) return { action, target };
  throw new BadRequest(`Expected an order: one of ${ACTIONS.join(", ")}, and its target; got "${text}"`);
}

/** Such as `153@12.5 kill w0.0;170@13 heal 1`: numbers keep every digit. */
export const formatOrders = (orders: readonly PlacedOrder[]): string =>
  orders.map(({ events, ms, action, target }) => `${events}@${ms} ${action} ${target}`).join(";");

/** @throws {BadRequest} */
export const parseOrders = (text: string): PlacedOrder[] =>
  text === "" ? [] : text.split(";").map(parsePlaced);

function parsePlaced(text: string): PlacedOrder {
  const [, events, ms, order] = /^(\d+)@(\d[\d.e+-]*) (.+)$/.exec(text) ?? [];
  if (order === undefined || Number.isNaN(Number(ms)))
    throw new BadRequest(`Expected orders such as "153@12.5 kill w0.0", got "${text}"`);
  return { events: Number(events), ms: Number(ms), ...parseOrder(order) };
}
