#!/bin/bash
# drives that md or device mapper has, and members on md and device mapper
#: SIZE=256M
. ./lib.sh
a=/dev/rig0 b=/dev/rig1
modprobe -a raid0 dm-mod
check "mdadm" mdadm -q --create /dev/md0 --run --level=0 --raid-devices=2 $a $b
refused "a drive in md" "part of md0" swath create --force $a
check "md as a member" swath create --force /dev/md0
check "its geometry" guest-probe facts /dev/md0
for how in uring aio sync; do check "every operation on md, $how" guest-probe operations $how /dev/md0; done
check "wipe it" swath wipe /dev/md0
check "md lets go" within 2 mdadm -q --stop /dev/md0
blank $a $b

size=$(blockdev --getsz $a)
dmsetup create lin --table "0 $size linear $a 0"
refused "a drive in device mapper" "part of dm-" swath create --force $a
check "device mapper as a member" swath create --force /dev/mapper/lin
for how in uring aio sync; do check "every operation on device mapper, $how" guest-probe operations $how /dev/mapper/lin; done
check "IOPOLL through device mapper to poll queues" guest-probe queue uring+iopoll /dev/mapper/lin
says "auto takes it there too" "IOPOLL" guest-probe queue auto+iopoll /dev/mapper/lin
check "wipe it" swath wipe /dev/mapper/lin
check "device mapper lets go" within 2 dmsetup remove lin
check "the drive can be had again" swath create $a
finish
