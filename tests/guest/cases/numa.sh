#!/bin/bash
# a drive on a NUMA node of its own, and NVMe without poll queues
#: DRIVES=1 APPEND=nvme.poll_queues=0 EXTRA=far_drive
. ./lib.sh
needs mkfs.ext4 sfdisk
says "the NUMA node of the far drive" "numa_node: Some\(1\)" guest-probe facts /dev/rig9
says "none of the near one" "numa_node: None" guest-probe facts /dev/rig0
sfdisk -q /dev/rig9 <<<',100M' 2>/dev/null
p=$(readlink -f /dev/rig9)p1
check "a partition" within 5 test -b "$p"
says "has its drive's facts" "capacity_bytes: 104857600.*numa_node: Some\(1\)" guest-probe facts "$p"
refused "IOPOLL without poll queues" "rig0: no polling.*nvme.poll_queues" guest-probe queue uring+iopoll /dev/rig0
says "auto goes on without, and says so" "; no IOPOLL: /dev/rig0" guest-probe queue auto+iopoll /dev/rig0
check "every operation, auto+iopoll" guest-probe operations auto+iopoll /dev/rig0
refused "a benchmark with it" "no polling" swath-matrix -q --destructive --runtime 100ms --ramp-time 0ms \
  --bs 4k --rw randread --iopoll --backend uring /dev/rig0
finish
