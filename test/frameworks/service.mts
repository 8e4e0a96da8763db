// A service as users write it.
import { Injectable, SetMetadata } from "@nestjs/common";
import type { Lock } from "leasehold";
import { WithLock } from "./nest.js";

export { LeaseholdModule } from "./nest.js";

@Injectable()
export class Place {
  @SetMetadata("kept", "yes")
  @WithLock((user: string) => `nest/${user}`, { timeoutMs: 500 })
  async place(user: string, works: { do(lock: Lock): Promise<string> }, lock?: Lock): Promise<string> {
    if (user === "fails") throw new Error("of the method");
    return works.do(lock!);
  }
}
