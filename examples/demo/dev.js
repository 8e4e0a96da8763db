// @ts-check
// The etcd of `leasehold dev`, in a process of its own: no installation, no download, and nothing of it in the processes that judge.
import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/**
 * @param {string} [reason] why the demo uses this one: a sentence
 * @returns {Promise<import("./nemesis.js").EtcdCluster>} three members
 */
export async function startDev(reason) {
  const server = fork(fileURLToPath(new URL("dev-server.js", import.meta.url)), {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  const ended = once(server, "exit");
  /** One request at a time. @param {import("./dev-server.js").Request} [request] */
  const answer = async (request) => {
    const answered = once(server, "message");
    if (request) server.send(request);
    const [message] = await Promise.race([answered, ended.then(died)]);
    return message;
  };
  const { version, endpoints } = await answer();
  return {
    what: "3 members of leasehold's own etcd",
    why: `${reason ? `${reason}\n  ` : ""}This is the etcd of leasehold dev, in one process, which answers as etcd ${version} does.`,
    endpoints,
    leader: async () => {
      const index = await answer({ k: "leader" });
      return {
        name: `m${index + 1}`,
        kill: () => answer({ k: "kill", index }),
        restart: () => answer({ k: "restart", index }),
      };
    },
    stop: async () => {
      server.kill("SIGKILL");
      await ended;
    },
  };
}

/** @returns {never} */
function died() {
  throw new Error("leasehold's own etcd has ended");
}
