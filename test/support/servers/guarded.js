// The process that cleans up after a starter that has died.
export { Guardian } from "../../../dist/testing/servers.js";
