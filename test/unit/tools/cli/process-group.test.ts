import { afterEach, describe, expect, it, vi } from "vitest";
import { ProcessGroup } from "../../../../src/tools/cli/run/supervisor.js";

afterEach(() => void vi.restoreAllMocks());

describe("the process group of a command", () => {
  const sleep = [process.execPath, "-e", "setInterval(() => {}, 1000)"] as const;
  const start = () => new ProcessGroup(sleep, process.env, { started: () => {} });
  const failing = (code: string) => () => {
    throw Object.assign(new Error(code), { code });
  };

  it("says that a signal was denied, and is alive, when all of it belongs to another user", async () => {
    const group = start();
    const kill = vi.spyOn(process, "kill").mockImplementation(failing("EPERM"));

    expect([group.signal("SIGTERM"), group.alive]).toEqual([false, true]);
    kill.mockRestore();
    expect(group.signal("SIGKILL")).toBe(true);
    expect(await group.ended).toBe(128 + 9);
  });

  it("is gone, and no signal to it was denied, when no process is left in it", async () => {
    const group = start();
    group.signal("SIGKILL");
    await group.ended;
    vi.spyOn(process, "kill").mockImplementation(failing("ESRCH"));

    expect([group.signal("SIGTERM"), group.alive]).toEqual([true, false]);
  });
});
