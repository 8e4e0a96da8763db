import type { FaultKind, Field, Ground } from "../runner/ground.js";
import type { Refusal } from "../runner/history.js";
import { moment, pastFailOver } from "../runner/schedule.js";
import type { Users } from "../runner/users.js";

/** A ground whose members can require passwords, if the run has asked for that. */
export interface Peopled extends Ground {
  readonly users: Users | undefined;
}

interface Edit {
  readonly name: string;
  readonly refuses: Refusal;
  readonly lasts?: FaultKind["lasts"];
  /** Whether passwords must be required for this fault; default: required. */
  readonly on?: boolean;
  readonly edit: (users: Users, field: Field<Peopled>) => Promise<void>;
  readonly undo?: (users: Users) => Promise<void>;
}

const onUsers = ({ name, refuses, lasts, on = true, edit, undo }: Edit): FaultKind<Peopled> => ({
  ...{ name, effect: "hinders", refuses, needs: "auth", sparesLeases: true, lasts: lasts ?? pastFailOver },
  async inflict(field) {
    const { users } = field.ground;
    if (users?.on !== on) return undefined;
    await edit(users, field);
    return { target: "all", heal: () => undo?.(users) };
  },
});

/** A prefix that the workers' role gets beyond all that it needs. */
const ELSEWHERE = "elsewhere/";

export const userFaults: readonly FaultKind<Peopled>[] = [
  onUsers({
    ...{ name: "auth-off", refuses: "token" },
    edit: (users) => users.turn(false),
    undo: (users) => users.turn(true),
  }),
  onUsers({
    ...{ name: "auth-on", refuses: "token", on: false },
    edit: (users) => users.turn(true),
    undo: (users) => users.turn(false),
  }),
  onUsers({
    // Setting the same password again drops them.
    ...{ name: "tokens-dropped", refuses: "token", lasts: moment },
    edit: (users) => users.changePassword(),
  }),
  onUsers({
    ...{ name: "role-edited", refuses: "token" },
    edit: (users) => users.grant(ELSEWHERE),
    undo: (users) => users.revoke(ELSEWHERE),
  }),
  onUsers({
    ...{ name: "role-revoked", refuses: "cluster" },
    edit: (users) => users.revoke(users.prefix),
    undo: (users) => users.grant(users.prefix),
  }),
  onUsers({
    ...{ name: "password-changed", refuses: "cluster" },
    edit: (users) => users.changePassword("another"),
    undo: (users) => users.changePassword(),
  }),
  onUsers({
    ...{ name: "user-recreated", refuses: "cluster", lasts: moment },
    async edit(users) {
      await users.deleteWorker();
      await users.addWorker();
    },
  }),
];
