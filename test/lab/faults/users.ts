import type { FaultKind, Field, Ground } from "../runner/ground.js";
import type { Refusal } from "../runner/history.js";
import { moment, pastFailOver } from "../runner/schedule.js";
import type { Users } from "../runner/users.js";

/** A ground whose members may ask for passwords, if that was asked for. */
export interface Peopled extends Ground {
  readonly users: Users | undefined;
}

interface Edit {
  readonly name: string;
  readonly refuses: Refusal;
  readonly lasts?: FaultKind["lasts"];
  /** What passwords must be like for this; default: asked for. */
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

/** Of the workers' role, beside all that they need. */
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
    // By the same password, set again.
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
