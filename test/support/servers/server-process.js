// The process of a server started by tests, and the actions on it.
export { PortTakenError, ServerProcess } from "../../../dist/testing/servers.js";
