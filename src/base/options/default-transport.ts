/** A file of its own, so that the tests can run with another default: see test/support/transport.js. */
export const DEFAULT_TRANSPORT: "http2" | "etcd3" = "http2";
