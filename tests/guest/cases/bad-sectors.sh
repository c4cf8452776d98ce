#!/bin/bash
# ranges of a drive that cannot be read or written: the error and its place, what is poisoned, what goes on
#: SIZE=256M
. ./lib.sh
modprobe -a dm-mod dm-flakey
for i in 0 1 2 3; do
  dmsetup create d$i --table "0 $(blockdev --getsz /dev/rig$i) linear /dev/rig$i 0"
done
d=(/dev/mapper/d{0..3})
check "create on device mapper" swath create --name pool --chunk 64k "${d[@]}"
size=$(blockdev --getsz /dev/rig1)

# bad OFFSET LENGTH: this range of member 1 fails from now on, and no other.
bad() {
  local from=$(($1 / 512)) count=$(($2 / 512))
  dmsetup suspend d1
  dmsetup load d1 --table "0 $from linear /dev/rig1 0
$from $count error
$((from + count)) $((size - from - count)) linear /dev/rig1 $((from + count))"
  dmsetup resume d1
}

# Chunk 16 of member 1: 1 MiB behind the data offset of 2 MiB.
bad $((3 << 20)) 65536
at=$(((16 * 4 + 1) * 65536))
place="/dev/mapper/d1 at offset $((3 << 20)),"
says "a bad read: its member and offset, no poison" "read $place 4096 bytes.*Input/output error.*\[Device\]; poisoned=false" \
  guest-probe at read $at 4096 "${d[@]}"
says "its neighbour before" "ok; poisoned=false" guest-probe at read $((at - 65536)) 65536 "${d[@]}"
says "its neighbour after" "ok; poisoned=false" guest-probe at read $((at + 65536)) 1000000 "${d[@]}"
says "a read over all of it" "read $place .*\[Device\]; poisoned=false" guest-probe at read 0 10000000 "${d[@]}"
says "a bad write poisons" "write $place .*\[Device\]; poisoned=true" guest-probe at write $at 65536 "${d[@]}"
says "a write of a few bytes there fails by its read: no poison" "read /dev/mapper/d1 .*\[Device\]; poisoned=false" \
  guest-probe at write $((at + 5)) 10 "${d[@]}"
says "a good write elsewhere" "ok; poisoned=false" guest-probe at write 0 65536 "${d[@]}"
refused "swath read" "read $place" swath read --offset $at --length 64k "${d[@]}"
head -c 10m /dev/zero >/tmp/in
refused "swath write" "bytes written from offset 0, and not flushed: write $place" swath write "${d[@]}" --input /tmp/in
for how in uring uring+iopoll aio sync sync+inline; do
  out=$(LOAD_ONLY=read LOAD_BLOCKS=31 guest-probe load $how 1 "${d[@]}")
  grep -q "^read Device" <<<"$out" && grep -q "^read ok" <<<"$out" && grep -q "^not poisoned" <<<"$out"
  verdict "reads around it, $how" $? 0 "$out"
  out=$(LOAD_BLOCKS=31 guest-probe load $how 2 "${d[@]}")
  grep -q "^poisoned \[Device\]: write $place" <<<"$out" && grep -q "^read ok" <<<"$out"
  verdict "all kinds of requests around it, $how" $? 0 "$out"
done

# A superblock copy that cannot be read, nor written.
bad $((1 << 20)) 4096
says "examine tells the copy" "Copy 0 : unreadable: .*d1 at offset 1048576" swath examine /dev/mapper/d1
check "opening for reading goes by the others" swath read --length 4k "${d[@]}"
refused "opening for writing cannot mend it" "write /dev/mapper/d1 at offset 1048576, 4096 bytes" guest-probe at write 0 4096 "${d[@]}"

# A drive that has become read-only by itself.
dmsetup suspend d1
dmsetup load d1 --table "0 $size flakey /dev/rig1 0 0 100 1 error_writes"
dmsetup resume d1
check "writes all fail: reading goes on" swath read --length 1m "${d[@]}"
refused "writes all fail: opening for writing says so" "flush /dev/mapper/d1" guest-probe at flush 0 0 "${d[@]}"
for i in 0 1 2 3; do dmsetup remove d$i; done
finish
