import type { EtcdMember } from "./etcd.js";

/** Switches the alarm that etcd raises when its quota is exceeded: until it is off, etcd rejects puts and grants. */
export async function spaceAlarm(member: EtcdMember, action: "ACTIVATE" | "DEACTIVATE"): Promise<void> {
  const { header } = (await member.gateway("/v3/maintenance/status", {})) as {
    header: { member_id: string };
  };
  const alarm = { memberID: header.member_id, alarm: "NOSPACE", action };
  await member.gateway("/v3/maintenance/alarm", alarm);
}
