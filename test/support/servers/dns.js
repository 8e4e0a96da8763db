// A name server on the loopback that answers questions for SRV records: RFC 1035, and RFC 2782 for the records.
import dgram from "node:dgram";
import { once } from "node:events";

const SRV = 33;
const HEADER_BYTES = 12;

/** @typedef {{ name: string, port: number, priority?: number, weight?: number }} Record */

/** @param {string} name */
const labels = (name) =>
  Buffer.concat([...name.split("."), ""].map((label) => Buffer.from([label.length, ...Buffer.from(label)])));

/** @param {Record} record */
function answerOf({ name, port, priority = 0, weight = 0 }) {
  const target = labels(name);
  // The name asked for, as a pointer into the question; type, class and time to live.
  const head = Buffer.from([0xc0, HEADER_BYTES, 0, SRV, 0, 1, 0, 0, 0, 0, 0, 6 + target.length]);
  const numbers = Buffer.from([priority, weight, port].flatMap((number) => [number >> 8, number & 255]));
  return Buffer.concat([head, numbers, target]);
}

/** The names that were asked for, and what is answered: no records, no such name. */
export class DnsServer {
  /** @type {Map<string, readonly Record[]>} */
  records = new Map();
  /** @type {string[]} */
  asked = [];
  #socket = dgram.createSocket("udp4");

  async listen() {
    this.#socket.on("message", (question, { port, address }) => {
      const name = this.#nameOf(question);
      this.asked.push(name);
      const records = this.records.get(name) ?? [];
      const head = Buffer.from(question.subarray(0, HEADER_BYTES));
      head.writeUInt16BE(records.length === 0 ? 0x8183 : 0x8180, 2);
      head.writeUInt16BE(records.length, 6);
      head.fill(0, 8);
      const asked = question.subarray(HEADER_BYTES, HEADER_BYTES + name.length + 2 + 4);
      this.#socket.send(Buffer.concat([head, asked, ...records.map(answerOf)]), port, address);
    });
    await once(this.#socket.bind(0, "127.0.0.1"), "listening");
    return this;
  }

  /** As `dns.setServers` takes it. */
  get address() {
    return `127.0.0.1:${this.#socket.address().port}`;
  }

  close() {
    this.#socket.close();
  }

  /** @param {Buffer} question */
  #nameOf(question) {
    const found = [];
    for (let at = HEADER_BYTES; question[at]; at += /** @type {number} */ (question[at]) + 1)
      found.push(question.toString("latin1", at + 1, at + 1 + /** @type {number} */ (question[at])));
    return found.join(".").toLowerCase();
  }
}
