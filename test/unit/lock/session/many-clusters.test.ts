import { onTestFinished, expect, test, vi } from "vitest";
import { connect } from "../../../../src/index.js";
import type { Cluster } from "../../../../src/index.js";

/** The codes of the warnings of the process from now on. */
function warnings(): { readonly code: unknown; readonly text: string }[] {
  const seen: { code: unknown; text: string }[] = [];
  const spy = vi.spyOn(process, "emitWarning").mockImplementation((warning, options) => {
    seen.push({ code: (options as { readonly code?: unknown }).code, text: String(warning) });
  });
  onTestFinished(() => spy.mockRestore());
  return seen;
}

const opened = (hosts: string, count: number): Cluster[] =>
  Array.from({ length: count }, () => connect({ hosts }));
const closeAll = (clusters: readonly Cluster[]): Promise<unknown> =>
  Promise.all(clusters.map((cluster) => cluster.close()));

test("forty open clusters of the same hosts bring one warning, with the tenth", async () => {
  const seen = warnings();

  const nine = opened("many-1:2379", 9);
  expect(seen).toEqual([]);
  const more = opened("many-1:2379", 31);

  expect(seen).toEqual([
    { code: "MANY_CLUSTERS", text: expect.stringContaining("10 clusters of http://many-1:2379") as string },
  ]);
  await closeAll([...nine, ...more]);
});

test("clusters that are closed do not count, nor those of other hosts", async () => {
  const seen = warnings();

  for (let round = 0; round < 3; round++) {
    const clusters = [...opened("many-2:2379", 9), ...opened(`many-3-${round}:2379`, 9)];
    await closeAll(clusters);
    await closeAll(clusters);
  }
  await closeAll(opened("many-2:2379", 9));

  expect(seen).toEqual([]);
});

test("a hot reload of leasehold itself does not begin the count again", async () => {
  const seen = warnings();
  const before = opened("many-4:2379", 9);

  vi.resetModules();
  const again = (await import("../../../../src/index.js")) as { readonly connect: typeof connect };
  const after = again.connect({ hosts: "many-4:2379" });

  expect(again.connect).not.toBe(connect);
  expect(seen.map(({ code }) => code)).toEqual(["MANY_CLUSTERS"]);
  await closeAll([...before, after]);
});
