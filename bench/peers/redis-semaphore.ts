import { connectMutex } from "../../test/chaos/rivals/subjects/redis-semaphore.js";
import { polling } from "./polling.js";

export const connect = polling(connectMutex);
