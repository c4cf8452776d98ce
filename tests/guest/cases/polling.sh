#!/bin/bash
# IOPOLL where it is and is not to be had; devices of other kinds; io_uring switched off
#: DRIVES=2 EXTRA=virtio_disk
. ./lib.sh
modprobe null_blk nr_devices=0
null() { # NAME ATTRIBUTE=VALUE...
  local folder=/sys/kernel/config/nullb/$1 x; shift
  mkdir "$folder"
  for x in size=256 memory_backed=1 irqmode=0 discard=1 "$@"; do echo "${x#*=}" >"$folder/${x%%=*}"; done
  echo 1 >"$folder/power"
}
null nullb0 blocksize=512 poll_queues=0
null nullb1 blocksize=4096 poll_queues=1
null nullb2 blocksize=512 poll_queues=0 discard=0
truncate -s 256M /tmp/disk; modprobe loop; losetup /dev/loop0 /tmp/disk
modprobe brd rd_size=262144 rd_nr=1
modprobe -a virtio_blk sd_mod
modprobe scsi_debug dev_size_mb=128 lbpu=1 lbpws=1
within 5 test -b /dev/sda -a -b /dev/vda; verdict "a SCSI disk and a virtio disk" $? 0 "$(ls /dev)"
others=(/dev/nullb0 /dev/nullb2 /dev/loop0 /dev/ram0 /dev/sda /dev/vda)
for d in "${others[@]}"; do
  check "facts of $d" guest-probe facts "$d"
  for how in uring+iopoll uring+iopoll+sqpoll; do
    refused "$how on $d" "$d: no polling.*poll queues" guest-probe queue $how "$d"
  done
  says "auto+iopoll on $d" "; no IOPOLL: $d" guest-probe queue auto+iopoll "$d"
  for how in uring aio sync sync+inline; do
    if [ "$d" = /dev/nullb2 ]; then
      refused "every operation on $d, $how: it has no discard" "discard.*does not support this" guest-probe operations $how "$d"
    else
      check "every operation on $d, $how" guest-probe operations $how "$d"
    fi
  done
done
refused "IOPOLL on one of two" "nullb0.*poll queues" guest-probe queue uring+iopoll /dev/rig0 /dev/nullb0
check "IOPOLL on null_blk with poll queues" guest-probe operations uring+iopoll /dev/nullb1
check "IOPOLL on NVMe with poll queues" guest-probe operations uring+iopoll /dev/rig0
check "a volume over drives of two kinds" guest-probe operations uring /dev/rig0 /dev/loop0
check "wipe it" swath wipe /dev/rig0 /dev/loop0
matrix=(swath-matrix -q --destructive --runtime 100ms --ramp-time 0ms --bs 4k --rw randread)
check "a benchmark goes on without IOPOLL" "${matrix[@]}" --iopoll /dev/loop0
refused "unless it was told the backend" "poll queues" "${matrix[@]}" --iopoll --backend uring /dev/loop0

# Once 2 it stays until the next boot.
echo 2 >/proc/sys/kernel/io_uring_disabled
says "io_uring switched off: auto says why" "aio.*io_uring" guest-probe queue auto /dev/rig0
refused "io_uring switched off: uring" "io_uring" guest-probe queue uring /dev/rig0
check "io_uring switched off: every operation" guest-probe operations auto /dev/rig0 /dev/rig1
check "io_uring switched off: a benchmark" "${matrix[@]}" /dev/rig0 /dev/rig1
echo 0 >/proc/sys/fs/aio-max-nr
refused "no AIO either" "aio" guest-probe queue aio /dev/rig0
check "no AIO either: every operation" guest-probe operations auto /dev/rig0 /dev/rig1
finish
