import { isUtf8 } from "node:buffer";

/** Of a name, in bytes. A foreign key may have more than a million, all slashes. */
const MAX_NAME = 1024;

/** The names of all queues that a key may count in: its directories, the nearest last. */
export function directoriesOf(key: string | Buffer): readonly string[] {
  const bytes = typeof key === "string" ? key : key.toString("latin1", 0, MAX_NAME + 1);
  const directories: string[] = [];
  for (
    let slash = bytes.indexOf("/");
    slash !== -1 && slash <= MAX_NAME;
    slash = bytes.indexOf("/", slash + 1)
  ) {
    const directory = bytes.slice(0, slash);
    if (typeof key === "string") directories.push(directory);
    else if (isUtf8(Buffer.from(directory, "latin1"))) directories.push(textOf(directory));
  }
  return directories;
}

const textOf = (latin1: string): string => Buffer.from(latin1, "latin1").toString();
