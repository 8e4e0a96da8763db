import { connectMutex } from "../../test/lab/rivals/subjects/redis-semaphore.js";
import { polling } from "./polling.js";

export const connect = polling(connectMutex);
