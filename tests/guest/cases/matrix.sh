#!/bin/bash
# swath-matrix on drives: what it may write to, and every way to drive them
#: SIZE=256M
. ./lib.sh
needs mkfs.ext4 blkid
# Both ends of every drive, where a volume would leave its marks: the whole would take minutes here.
sums() {
  local d
  for d in "${drives[@]}"; do
    dd if="$d" bs=1M count=4 status=none
    dd if="$d" bs=1M skip=$(($(blockdev --getsize64 "$d") / 1048576 - 4)) status=none
  done | md5sum
}
tiny=(-q --runtime 200ms --ramp-time 50ms --bs 4k,64k,1m --iodepth 8 --no-pin)
before=$(sums)
refused "blank drives without --destructive" "destructive" swath-matrix "${tiny[@]}" "${drives[@]}"
[ "$before" = "$(sums)" ]; verdict "nothing was written" $? 0 ""
check "dry run" swath-matrix "${tiny[@]}" --dry-run "${drives[@]}"
[ "$before" = "$(sums)" ]; verdict "nothing was written by it" $? 0 ""
check "with --destructive" swath-matrix "${tiny[@]}" --destructive "${drives[@]}"
check "a volume" swath create --force --name mine --chunk 64k "${drives[@]}"
head -c 5000000 /dev/urandom >/tmp/in
check "its bytes" swath write "${drives[@]}" --input /tmp/in
refused "writes to it without --destructive" "destructive" swath-matrix "${tiny[@]}" --rw randwrite "${drives[@]}"
check "reads of it without --destructive" swath-matrix "${tiny[@]}" --rw randread,read "${drives[@]}"
check "its bytes are still there" bash -c 'swath read "$@" --length 5000000 2>/dev/null | cmp - /tmp/in' - "${drives[@]}"
for how in "--backend uring" "--backend aio" "--backend sync" "--iopoll" "--backend uring --iopoll" "--sqpoll" \
  "--iopoll --sqpoll" "--baseline" "--numjobs 2"; do
  # shellcheck disable=SC2086
  check "$how" swath-matrix -q --runtime 150ms --ramp-time 0ms --bs 4k,1m --iodepth 8 --no-pin --destructive $how "${drives[@]}"
done
for d in "${drives[@]}"; do swath wipe "$d" >/dev/null 2>&1; done
mkfs.ext4 -q -F /dev/rig1
refused "a file system without --destructive" "carry no volume" swath-matrix "${tiny[@]}" "${drives[@]}"
blkid -p /dev/rig1 | grep -q ext4; verdict "it is still there" $? 0 ""
mkdir -p /mnt/x; modprobe ext4; mount /dev/rig1 /mnt/x
refused "--destructive, but mounted" "mounted at /mnt/x" swath-matrix "${tiny[@]}" --destructive "${drives[@]}"
umount /mnt/x
finish
