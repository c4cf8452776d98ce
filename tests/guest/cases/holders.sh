#!/bin/bash
# who may open a drive: other programs, mounts, partitions, swap; file members on real file systems
#: SIZE=1G
. ./lib.sh
needs mkfs.ext4 mkfs.xfs sfdisk mkswap
a=/dev/rig0 b=/dev/rig1 c=/dev/rig2
mkdir -p /mnt/x /mnt/y /mnt/f

# Another opener, of ours and of others.
guest-probe hold 6 $a >/tmp/held &
check "held" bash -c 'until grep -q held /tmp/held; do sleep 0.1; done'
refused "a second opener" "in use by another process: guest-probe .*holds its lock" guest-probe hold 1 $a
refused "create on a held drive" "in use" swath create $a $b
refused "mkfs on a held drive" "in use|busy" mkfs.ext4 -q -F $a
check "facts of a held drive" guest-probe facts $a
wait
check "after it let go" guest-probe hold 0 $a
flock -x "$(readlink -f $a)" sleep 4 & sleep 1
refused "a lock of another program" "in use by another process: (flock|sleep) .*holds its lock" guest-probe hold 1 $a
wait

# A volume in use.
check "make the volume" swath create --name pool $a $b
(sleep 8; head -c 1000000 /dev/zero) | swath write $a $b >/dev/null 2>&1 & sleep 1.5
refused "a volume that is written to" "in use by another process: swath" swath read --length 4k $a $b
says "detail says so" "State : clean, in use" swath detail $a $b
check "examine goes on" swath examine $a $b
refused "wipe does not" "in use" swath wipe $a $b
wait
check "two readers at once" bash -c "(swath read --length 32m $a $b | (sleep 1; cat) >/dev/null) & swath read --length 1m $a $b >/dev/null; wait"
check "wipe the volume" swath wipe $a $b

# Mounted file systems.
modprobe -a ext4 xfs
check "mkfs.ext4" mkfs.ext4 -q -F -L root $a
check "mkfs.xfs" mkfs.xfs -q -f -L fast $b
mount $a /mnt/x && mount $b /mnt/y
refused "create on a mounted drive" "mounted at /mnt/x" swath create $a $c
refused "create on a mounted drive, forced" "mounted at /mnt/y" swath create --force $b $c
refused "wipe of a mounted drive" "mounted at /mnt/x" swath wipe --force $a
refused "a benchmark of a mounted drive" "mounted at /mnt/x" \
  swath-matrix --destructive --runtime 100ms --bs 4k --rw write $a $c
umount /mnt/x /mnt/y
check "the file systems are whole" bash -c "mount $a /mnt/x && mount $b /mnt/y && umount /mnt/x /mnt/y"

# File members on them. A ring lets go of its files a moment after its process has ended.
mount $a /mnt/f
check "file members on ext4" swath create --size 64m --count 2 /mnt/f
says "detail of them" "State : clean" swath detail /mnt/f
for how in uring uring+iopoll aio sync auto; do
  check "every operation on ext4, $how" guest-probe operations $how /mnt/f/member-0 /mnt/f/member-1
done
check "unmount" within 2 umount /mnt/f
mount $b /mnt/f
check "file members on xfs" swath create --size 64m --count 2 /mnt/f
for how in uring uring+iopoll aio sync auto; do
  check "every operation on xfs, $how" guest-probe operations $how /mnt/f/member-0 /mnt/f/member-1
done
check "unmount" within 2 umount /mnt/f

# Partitions.
blank $a
printf 'label: gpt\n,100M\n,\n' | sfdisk -q $a
p=$(readlink -f $a)p1
check "the partition comes" within 5 test -b "$p"
refused "its drive" "GPT" swath create $a
mkfs.ext4 -q -F "$p"
mount "$p" /mnt/x
refused "a drive with a mounted partition" "in use" swath create --force $a
refused "a mounted partition" "mounted at /mnt/x" swath create --force "$p"
umount /mnt/x
check "a partition as a member" swath create --force "$p"
says "its geometry" "capacity_bytes: 104857600" guest-probe facts "$p"
guest-probe hold 3 "$p" & sleep 1
refused "its drive while the partition is open" "in use" guest-probe hold 0 $a
wait
check "wipe of the partition" swath wipe "$p"
blank $a

mkswap $a >/dev/null && swapon $a
refused "a drive in use as swap" "in use" swath create --force $a
swapoff $a
blank $a

blockdev --setro $a
refused "a read-only drive" "read-only" swath create $a
blockdev --setrw $a
character=$(readlink -f $a)  # /dev/nvme0n1 has /dev/ng0n1 beside it
refused "a character device" "character device" swath create "${character/nvme/ng}"
finish
