// Free ports on the loopback interface.
export { freePorts } from "../../../dist/testing/servers/ports.js";
