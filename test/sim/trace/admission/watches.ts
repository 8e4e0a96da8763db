import type { StreamEvent } from "../events.js";

interface Watched {
  readonly key: string;
  readonly end: string | undefined;
  createdAt: number | undefined;
}

/** A watch that etcd had created when a read was sent. */
export interface Created {
  readonly key: string;
  readonly end: string | undefined;
  readonly createdAt: number;
}

export const covers = ({ key, end }: Pick<Created, "key" | "end">, other: string): boolean =>
  end === undefined ? key === other : key <= other && other < end;

/** The watches of one process. */
export class CreatedWatches {
  readonly #streams = new Map<number, Map<number, Watched>>();

  /** Returns whether the stream is over. */
  follow(event: StreamEvent): boolean {
    const stream = this.#streams.get(event.stream) ?? new Map<number, Watched>();
    this.#streams.set(event.stream, stream);
    switch (event.is) {
      case "watch": {
        const { watchId, key, end } = event.request;
        stream.set(watchId, { key: String(key), end: end && String(end), createdAt: undefined });
        return false;
      }
      case "unwatch":
        stream.delete(event.watchId);
        return false;
      case "stream over":
        this.#streams.delete(event.stream);
        return true;
      case "watch answered": {
        const { watchId, created, cancelled, header } = event.answer;
        const watch = stream.get(watchId);
        if (watch && created) watch.createdAt = Number(header.revision);
        if (cancelled) stream.delete(watchId);
        return false;
      }
    }
  }

  get created(): Created[] {
    const all = [...this.#streams.values()].flatMap((stream) => [...stream.values()]);
    return all.flatMap(({ key, end, createdAt }) =>
      createdAt === undefined ? [] : [{ key, end, createdAt }],
    );
  }
}
