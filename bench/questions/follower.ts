// Hand-over with three members, with all clients connected to a follower.
import { againstGo, HAND_OVER_COLUMNS, handOver, nameOf } from "./hand-over.js";
import type { Question } from "./question.js";

const CROWD = [2, 10, 100];
const QUICK_CROWD = [2];

export const follower: Question = {
  name: "follower",
  title: "Hand-over on three members, through a follower",
  members: 3,
  columns: HAND_OVER_COLUMNS,
  cases: ({ quick }) =>
    (quick ? QUICK_CROWD : CROWD).map((contenders) => ({
      ...{ name: nameOf(contenders), peers: ["leasehold", "go"] as const },
      run: (field) => handOver(field, contenders, 0),
    })),
  targets: [
    ...againstGo(2, 20, undefined),
    ...againstGo(10, 3.5, undefined),
    ...againstGo(100, 1.1, undefined),
  ],
};
