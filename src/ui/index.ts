export { lockPage, type LockPage } from "./lock-page.js";
export type { LockPageOptions } from "./options.js";
