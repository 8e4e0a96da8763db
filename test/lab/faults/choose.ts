import type { Field, Ground, Member } from "../runner/ground.js";

/** Selects the member that a fault hits. */
export type Choose = (field: Field) => Promise<Member>;

export const leader: Choose = ({ ground }) => ground.leader();

export const follower: Choose = async ({ ground, random }) => {
  const led = await ground.leader();
  return random.pick(ground.members.filter((member) => member !== led));
};

/** The leader in half of the cases. */
export const either: Choose = (field) => (field.random.chance(0.5) ? leader(field) : follower(field));

/** The index of a member among the members. */
export const placeOf = ({ members }: Ground, member: Member) => members.indexOf(member);
