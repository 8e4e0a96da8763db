import { expect, it } from "vitest";
import type { Member } from "../../../src/etcd/port.js";
import { whileHeld } from "../../../src/index.js";
import { SimRegister } from "../../sim/run/sim-register.js";

/** Counts the connections. Calls on the first one fail. */
function setup() {
  const connections: { calls: number; retired: boolean }[] = [];
  const connect = (): Member => {
    const n = connections.length;
    const connection = { calls: 0, retired: false };
    connections.push(connection);
    const range = async () => {
      connection.calls++;
      await Promise.resolve();
      if (n === 0) throw new Error("lost");
      return { header: { revision: 7n }, kvs: [] };
    };
    return { range, retire: () => (connection.retired = true) } as unknown as Member;
  };
  return { connections, register: new SimRegister({ connect, prefix: "register/", guard: whileHeld }) };
}

it("a register leaves a connection whose call failed, once for several calls", async () => {
  const { connections, register } = setup();
  const failed = await Promise.allSettled([register.read("a"), register.read("b")]);
  expect(failed.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(await register.read("a")).toEqual({ seq: 0, rev: 7n });
  register.close();

  expect(connections).toEqual([
    { calls: 2, retired: true },
    { calls: 1, retired: true },
  ]);
});
