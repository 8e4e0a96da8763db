/** @type {(end: () => Promise<void>) => void} */
let registered = () => {};

/** `register` gets what ends a process, and calls it when the test that has started the process ends. @param {typeof registered} register */
export function endWithTests(register) {
  registered = register;
}

/** Outside vitest nothing calls it. @param {() => Promise<void>} end */
export function atEndOfTest(end) {
  registered(end);
}
