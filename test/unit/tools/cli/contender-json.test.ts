import { expect, test } from "vitest";
import { hexLease } from "../../../../src/tools/cli/io.js";

test.each([
  [0x694d9a1cn, "00000000694d9a1c"],
  [-5n, "-000000000000005"],
  [-(2n ** 63n), "-8000000000000000"],
])("lease %s is spelled as etcdctl prints and reads it: %s", (leaseId, text) => {
  expect(hexLease(leaseId)).toBe(text);
});
