// One member of an etcd in this process, as its gRPC services see it.
import type { Header } from "../../etcd/port.js";
import type { SimEtcd } from "../memory/etcd.js";
import { isRefusal, NO_LEADER, type Refusal, type UnaryRequest } from "../memory/protocol.js";
import type { AuthStore } from "../memory/users.js";
import type { HeaderMessage } from "./messages.js";
import type { Metadata } from "./server.js";

export type Done<Answer> = (answer: Answer | Refusal) => void;

export interface WithHeader {
  readonly header: Header;
}

/** What an administrator asks for. */
interface Administration<Result> {
  /** Default: root. */
  readonly needs?: "user" | "nothing";
  /** See `UnaryRequest`. */
  readonly isLocal?: boolean;
  /** Whether a user may do so because it is about himself. */
  readonly isOwn?: (username: string) => boolean;
  readonly run: (auth: AuthStore) => Refusal | Result | undefined;
}

export class ServedMember {
  /** `names` and `hosts`, such as "127.0.0.1:2379", are those of all members. */
  constructor(
    readonly etcd: SimEtcd,
    readonly index: number,
    readonly cluster: { readonly names: readonly string[]; readonly hosts: readonly string[] },
  ) {}

  /** The header of an answer that is made now. */
  get header(): HeaderMessage {
    return headerOf(this.etcd.header(this.index));
  }

  idOf(index: number): bigint {
    return BigInt(this.etcd.header(index).memberId);
  }

  ask<Answer>(request: UnaryRequest, { token, requiresLeader }: Metadata, done: Done<Answer>): void {
    const { etcd, index } = this;
    if (requiresLeader && etcd.leaderOf(index) === undefined) return done(NO_LEADER);
    const withToken = token === undefined ? request : { ...request, token };
    etcd.members[index]!.call(withToken, (reply) =>
      done(isRefusal(reply) ? reply : (reply.answer as Answer)),
    );
  }

  administer<Result extends object>(
    { needs, isLocal = false, isOwn = () => false, run }: Administration<Result>,
    metadata: Metadata,
    done: Done<Result & { readonly header: HeaderMessage }>,
  ): void {
    const request: UnaryRequest = {
      kind: "administer" as const,
      needs: needs ?? "root",
      isLocal,
      isOwn,
      run: (auth) => run(auth) ?? {},
    };
    this.ask<WithHeader & Result>(
      request,
      metadata,
      made(done, (answer) => ({ ...answer, header: headerOf(answer.header) })),
    );
  }
}

export const headerOf = ({ clusterId, memberId, revision, raftTerm }: Header): HeaderMessage => ({
  clusterId: BigInt(clusterId),
  memberId: BigInt(memberId),
  revision,
  raftTerm,
});

/** What is made of an answer; a refusal stays one. */
export const made =
  <Answer extends object, Made extends object>(
    done: Done<Made>,
    make: (answer: Answer) => Made,
  ): Done<Answer> =>
  (answer) =>
    done(isRefusal(answer) ? answer : make(answer));

export const headerOnly = ({ header }: WithHeader): { header: HeaderMessage } => ({
  header: headerOf(header),
});
