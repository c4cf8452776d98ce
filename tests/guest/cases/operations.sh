#!/bin/bash
# every operation of the engine on every backend, and the swath command, on blocks of every size
#: LBA=512
#: LBA=4096
#: LBA=512,4096
. ./lib.sh
for d in "${drives[@]}"; do
  queue=/sys/block/$(basename "$(readlink -f "$d")")/queue
  facts=$(guest-probe facts "$d")
  blocks="logical_block_bytes: $(<"$queue/logical_block_size"), physical_block_bytes: $(<"$queue/physical_block_size")"
  limits="transfer_bytes_max: Some($(($(<"$queue/max_sectors_kb") * 1024))), segments_max: Some($(<"$queue/max_segments")), rotational: Some(false)"
  [[ $facts == *"$blocks"* && $facts == *"$limits"* && $facts == *"capacity_bytes: $(blockdev --getsize64 "$d")"* ]]
  verdict "geometry of $d" $? 0 "$facts; the kernel: $blocks $limits"
done
check "create" swath create --name pool --chunk 64k "${drives[@]}"
check "detail" swath detail --json "${drives[@]}"
check "examine" swath examine "${drives[0]}"
refused "create again" 'carries Swath member 0 of volume "pool"' swath create "${drives[@]}"
head -c 40000001 /dev/urandom >/tmp/in
check "write" swath write "${drives[@]}" --offset 123457 --input /tmp/in
same() { swath read "$@" --offset 123457 --length 40000001 2>/dev/null | cmp - /tmp/in; }
check "read back" same "${drives[@]}"
reversed=()
for d in "${drives[@]}"; do reversed=("$d" "${reversed[@]}"); done
check "read back, members in reverse" same "${reversed[@]}"
check "rename" swath rename other "${drives[@]}"
refused "one member missing" "missing" swath read --length 4k "${drives[@]:1}"
refused "a member twice" "same file or device|one device" swath read --length 4k "${drives[@]}" "${drives[0]}"
check "wipe" swath wipe "${drives[@]}"
refused "detail after the wipe" "not a Swath member: blank" swath detail "${drives[@]}"
for how in uring uring+pool uring+sqpoll uring+iopoll uring+iopoll+pool uring+iopoll+sqpoll aio sync sync+inline auto; do
  check "every operation, $how" guest-probe operations $how "${drives[@]}"
done
finish
