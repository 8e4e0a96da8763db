import type { EndpointReport, Exam, Step } from "./exam.js";
import { NoAnswerError } from "./exam.js";
import { excerpt, fail, ok, type Finding } from "./finding.js";
import { codeOf, openTcp } from "./sockets.js";

/** Name service and TCP. */
export const reach: Step = async ({ exam, findings }: EndpointReport) => {
  try {
    const ms = await openTcp(exam);
    findings.push(ok("reach", `TCP connection in ${ms.toFixed(1)} ms`, { connectMs: ms }));
    return true;
  } catch (error) {
    exam.signal.throwIfAborted();
    findings.push(unreachable(exam, error));
    return false;
  }
};

const NO_NAME = new Set(["ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "EAI_NODATA"]);
const NO_ROUTE = new Set(["EHOSTUNREACH", "ENETUNREACH", "ETIMEDOUT", "EHOSTDOWN"]);

function unreachable({ hostname, port }: Exam, error: unknown): Finding {
  const code = codeOf(error) ?? "";
  if (NO_NAME.has(code))
    return fail(
      "reach",
      `the name ${excerpt(hostname)} has no address (${code})`,
      "correct the name in --endpoints, or the name service of this machine",
    );
  if (code === "ECONNREFUSED")
    return fail(
      "reach",
      `nothing listens on port ${port}: the connection was refused`,
      "start etcd there, or correct the port in --endpoints: clients use the one of --listen-client-urls, usually 2379",
    );
  if (error instanceof NoAnswerError || NO_ROUTE.has(code))
    return fail(
      "reach",
      error instanceof NoAnswerError
        ? `no TCP connection within ${error.afterMs} ms`
        : `no way there (${code})`,
      "see whether the machine is up, and which firewall drops packets to this port",
    );
  return fail("reach", `no TCP connection: ${excerpt(code)}`, "correct the host and the port in --endpoints");
}
