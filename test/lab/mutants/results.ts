// The rules of results that are kept, broken on purpose.
import type { Mutant } from "./mutant.js";

export const RESULTS: readonly Mutant[] = [
  {
    name: "result-without-its-mark",
    wrong: "gives a result to the caller whose lock was gone before the mark with it was put",
    patches: [
      {
        file: "recipes/once/run.js",
        from: "succeeded: isEnded(answer.ranges[0]?.kvs[0], mark.id, mayBeGone) };",
        to: "succeeded: true };",
      },
    ],
  },
  {
    name: "replay-of-another-fingerprint",
    wrong: "compares the key of a request alone",
    patches: [
      {
        file: "recipes/once/claim.js",
        from: "if (fingerprint !== undefined && other !== undefined && fingerprint !== other)",
        to: "if (fingerprint !== undefined && other === undefined && fingerprint === other)",
      },
    ],
  },
  {
    name: "expired-mark-believed",
    wrong: "remembers what it has read, and gives it out when etcd has it no longer",
    patches: [
      {
        file: "recipes/once/plan.js",
        from: "const mark = last && (parseMark(last) ?? {});",
        to: `const memory = (globalThis.leaseholdMarks ??= new Map());
        const mark = last ? (parseMark(last) ?? {}) : memory.get(this.at.key);
        memory.set(this.at.key, mark?.state === "done" ? mark : undefined);`,
      },
      {
        file: "recipes/once/plan.js",
        from: 'if (state === "free" || !last || !mark ||',
        to: 'if (state === "free" || !mark ||',
      },
    ],
  },
  {
    name: "told-done-before-the-result",
    wrong: "tells a call that waits that all is done when the run has left its queue, and reads nothing",
    patches: [
      {
        file: "recipes/once/claim.js",
        from: "        this.lease.assertOpen();\n        return this.#try();",
        to: '        return { refusal: { state: "done", run: { failed: false }, mark: { ...mark, state: "done" } } };',
      },
    ],
  },
  {
    name: "lost-run-forgotten",
    wrong: "lets the mark of a run that has not ended expire as early as one that has",
    patches: [
      {
        file: "recipes/once/slots.js",
        from: "Math.max(keepMs, LOST_MS)",
        to: "keepMs",
      },
    ],
  },
  {
    name: "lost-run-repeated",
    wrong: "runs a slot again whose run was lost, without being asked to",
    patches: [
      {
        file: "recipes/once/plan.js",
        from: 'return rerun !== "never";',
        to: "return true;",
      },
    ],
  },
  {
    name: "given-back-empty",
    wrong:
      "deletes the mark of a call that gives up before its work, and forgets the run that it had replaced",
    patches: [
      {
        file: "recipes/once/plan.js",
        from: "return this.#replaced ? putBack",
        to: "return false ? putBack",
      },
    ],
  },
];
