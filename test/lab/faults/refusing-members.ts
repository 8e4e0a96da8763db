import { makeAuthority } from "../../support/fixtures/certificates.js";
import { startGrpcProxy } from "../../support/proxies/grpc-proxy.js";
import { startRawServer } from "../../support/fakes/raw-server.js";
import type { FaultKind, Field } from "../runner/ground.js";
import { pastFailOver } from "../runner/schedule.js";
import type { Door } from "../tiers/door.js";
import { either, placeOf } from "./choose.js";
import type { Linked } from "./links.js";
import { OVERLOADED, PROPOSALS } from "./overload.js";

/** A ground where another server may take a member's place at its address. */
export interface Detoured extends Linked {
  /** One door in front of each member. */
  readonly doors: readonly Door[];
  /** The port of a member that does not vote. */
  learner(): Promise<number>;
}

/** A change to one door, and its reversal. */
interface Change {
  readonly name: string;
  readonly needs?: FaultKind["needs"];
  readonly prepare?: (ground: Detoured) => Promise<unknown>;
  readonly change: (door: Door, field: Field<Detoured>, memberPort: number) => Promise<Undo> | Undo;
}
type Undo = () => Promise<void> | void;

/** One member's address refuses all connections, or answers nothing that a client can use; the others serve. */
const onDoor = ({ name, needs, prepare, change }: Change): FaultKind<Detoured> => ({
  ...{ name, effect: "hinders", refuses: "member", sparesLeases: true, lasts: pastFailOver },
  ...(needs && { needs }),
  ...(prepare && { prepare }),
  async inflict(field) {
    const { ground } = field;
    const member = await either(field);
    const place = placeOf(ground, member);
    const door = ground.doors[place];
    if (door === undefined) return undefined;
    const undo = await change(door, field, Number(new URL(member.endpoint).port));
    // The connections to the other members, too: a client that moves on to the next member reaches this one.
    const reset = () => ground.links.forEach((link) => link.reset());
    reset();
    const heal = async () => {
      await undo();
      reset();
    };
    return { target: member.name, heal };
  },
});

/** Another server answers at the member's address. */
const instead = (name: string, start: (memberPort: number, field: Field<Detoured>) => Promise<Server>) =>
  onDoor({
    name,
    async change(door, field, memberPort) {
      const server = await start(memberPort, field);
      door.lead(server.port);
      return async () => {
        door.lead(undefined);
        await server.stop();
      };
    },
  });
interface Server {
  readonly port: number;
  stop(): Promise<void>;
}

const UNIMPLEMENTED = { status: 12, details: "unknown service etcdserverpb.KV" };

/** Like a load balancer without a server, or a web server at the wrong address. gRPC turns its answer into a status. */
const webServer = (status: number) =>
  startRawServer(() => ({
    headers: { ":status": status, "content-type": "text/html" },
    frames: Buffer.from(`<h1>${status}</h1>`),
    ...{ status: 0, how: "no trailers" },
  }));
/** gRPC maps these to UNAUTHENTICATED, PERMISSION_DENIED and UNIMPLEMENTED. */
const REFUSING = [401, 403, 404];

async function overloaded(port: number) {
  const proxy = await startGrpcProxy({ port });
  for (const path of PROPOSALS) proxy.rule({ path, act: "refuse", status: OVERLOADED });
  return proxy;
}

export const refusingMembers: readonly FaultKind<Detoured>[] = [
  instead("http-503", () => webServer(503)),
  instead("web-server", (_, { random }) => webServer(random.pick(REFUSING))),
  instead("unimplemented", () => startRawServer(() => UNIMPLEMENTED)),
  instead("too-many-requests", overloaded),
  onDoor({
    name: "learner",
    prepare: (ground) => ground.learner(),
    async change(door, { ground }) {
      door.lead(await ground.learner());
      return () => door.lead(undefined);
    },
  }),
  onDoor({
    ...{ name: "wrong-certificate", needs: "tls" },
    change(door) {
      door.show(makeAuthority("a stranger").issue("m"));
      return () => door.show();
    },
  }),
];
