import { EtcdRefusedError, EtcdUnavailableError, LeaseholdError } from "../../index.js";
import type { Exam } from "./exam.js";
import { excerpt, fail, type Finding } from "./finding.js";

interface Refusal {
  readonly finding: Finding;
  /** etcd answers, though not as asked for. */
  readonly works: boolean;
  /** Another request may have another outcome. */
  readonly goesOn: boolean;
}

/** What an error of a read, a session or a lock says about the endpoint. @throws the error if it is no error of the library's */
export function refusal(exam: Exam, error: unknown): Refusal {
  if (error instanceof EtcdRefusedError) return refused(exam, error);
  if (!(error instanceof LeaseholdError)) throw error;
  const finding = fail(
    error instanceof EtcdUnavailableError ? "answer" : "session",
    excerpt(error.message, 400),
    "see the log of this member: it may have lost its leader or a majority, be overloaded, or be cut off",
  );
  return { finding, works: false, goesOn: false };
}

const FULL =
  "compact and defragment (etcdctl compact, etcdctl defrag) or raise --quota-backend-bytes; then etcdctl alarm disarm";

function refused(exam: Exam, error: EtcdRefusedError): Refusal {
  const text = excerpt(error.message, 400);
  switch (error.why) {
    case "permission":
      return { finding: fail("rights", text, grant(exam)), works: true, goesOn: true };
    case "unauthenticated":
      return { finding: fail("login", text, login(exam)), works: true, goesOn: false };
    case "quota":
      return { finding: fail("space", text, FULL), works: true, goesOn: false };
    case "tls":
      return {
        finding: fail("tls", text, "check --cacert, --cert, --key and --server-name"),
        works: false,
        goesOn: false,
      };
    case "member":
      return { finding: fail("server", text, memberCure(text)), works: false, goesOn: false };
    case "other":
      return { finding: fail("lock", text, "see the log of this member"), works: true, goesOn: false };
  }
}

const grant = ({ auth, prefix }: Exam): string =>
  `grant ${auth ? `a role of ${excerpt(auth.username)}` : "a role of the certificate's user"} the right: ` +
  `etcdctl role grant-permission ROLE readwrite --prefix=true ${JSON.stringify(excerpt(prefix))}; ` +
  `or check the prefix of your own locks: leasehold doctor PREFIX`;

const login = ({ auth }: Exam): string =>
  auth
    ? "check --user, --password and ETCDCTL_PASSWORD"
    : "etcd wants a user: give --user, and ETCDCTL_PASSWORD";

function memberCure(text: string): string {
  if (text.includes("grpc-proxy")) return "list the members of etcd in --endpoints, not the proxy";
  if (text.includes("learner")) return "promote it (etcdctl member promote), or take it out of --endpoints";
  if (text.includes("corrupt")) return "stop this member, remove its data, and add it to the cluster again";
  return "correct the host and the port in --endpoints";
}
