// etcd's JSON gateway carries keys and values as base64.

/** @param {string} text */
export const encode = (text) => Buffer.from(text).toString("base64");
/** @param {string | undefined} text */
export const decode = (text = "") => Buffer.from(text, "base64").toString();
/** The first key after all keys with `prefix`. @param {string} prefix */
export const endOf = (prefix) =>
  prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);
