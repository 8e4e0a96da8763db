// A module of NestJS 11, and a decorator for methods that run under a lock, which is their last argument:
//   @Module({ imports: [LeaseholdModule.of({ hosts: "http://127.0.0.1:2379" })] })
//   @WithLock((user: string) => `orders/${user}`, { timeoutMs: 2_000 }) async place(user: string, lock?: Lock) { … }
// Put it below the other decorators of a method. The cluster ends with `app.close()`, and with SIGTERM after `app.enableShutdownHooks()`.
import { type DynamicModule, HttpException, Inject, Module } from "@nestjs/common";
import { type Cluster, connect, type ConnectOptions, httpStatusOf, Mutex, type WorkOptions } from "leasehold";

const CLUSTER = Symbol("leasehold");

@Module({})
export class LeaseholdModule {
  constructor(@Inject(CLUSTER) private readonly cluster: Cluster) {}

  static of(options: ConnectOptions): DynamicModule {
    const cluster = { provide: CLUSTER, useFactory: () => connect(options) };
    return { module: LeaseholdModule, global: true, providers: [cluster], exports: [CLUSTER] };
  }

  onApplicationShutdown = () => this.cluster.close();
}

/** An HttpException with 429 or 503 says that others have the lock, or that etcd does not answer. */
export function WithLock<A extends any[]>(name: (...args: A) => string, options?: WorkOptions) {
  return (target: object, _key: string, descriptor: TypedPropertyDescriptor<any>): void => {
    Inject(CLUSTER)(target, "lockCluster");
    const method = descriptor.value;
    descriptor.value = function (this: { lockCluster: Cluster }, ...args: A) {
      const locked = new Mutex(this.lockCluster, name(...args));
      return locked.withLock((lock) => method.call(this, ...args, lock), options).catch(refuse);
    };
  };
}

function refuse(error: Error): never {
  const status = httpStatusOf(error);
  throw status === undefined ? error : new HttpException(error.name, status, { cause: error });
}
