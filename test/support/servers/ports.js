// Free ports on the loopback interface.
export { freePorts, isFree } from "../../../dist/testing/servers.js";
