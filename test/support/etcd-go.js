// etcd built from its Go modules, for series that no Debian release carries yet.

/**
 * @param {string} into folder that gets `etcd` and `etcdctl`
 * @param {{ env: NodeJS.ProcessEnv, version?: string | undefined }} options
 */
export async function buildWithGo(into, options) {
  await Promise.reject(new Error(`Go: building ${String(options.version)} into ${into} is not known yet`));
}
