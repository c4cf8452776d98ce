#!/bin/bash
# 24 drives as two volumes of 12, used at the same time
#: DRIVES=24
. ./lib.sh
a=(/dev/rig{0..11}) b=(/dev/rig{12..23})
check "create a" swath create --name a --chunk 64k "${a[@]}"
check "create b" swath create --name b --chunk 1m "${b[@]}"
guest-probe operations uring+iopoll "${a[@]}" >/tmp/a 2>&1 & pa=$!
guest-probe operations aio "${b[@]}" >/tmp/b 2>&1 & pb=$!
wait $pa; verdict "every operation on a" $? 0 "$(cat /tmp/a)"
wait $pb; verdict "every operation on b" $? 0 "$(cat /tmp/b)"
check "create a again" swath create --force --name a --chunk 64k "${a[@]}"
check "create b again" swath create --force --name b --chunk 1m "${b[@]}"
head -c 60000001 /dev/urandom >/tmp/in
swath write "${a[@]}" --input /tmp/in >/tmp/a 2>&1 & pa=$!
swath write "${b[@]}" --input /tmp/in --offset 77 >/tmp/b 2>&1 & pb=$!
wait $pa; verdict "write to a" $? 0 "$(cat /tmp/a)"
wait $pb; verdict "write to b" $? 0 "$(cat /tmp/b)"
swath read "${a[@]}" --length 60000001 2>/dev/null | cmp - /tmp/in & pa=$!
swath read "${b[@]}" --length 60000001 --offset 77 2>/dev/null | cmp - /tmp/in & pb=$!
wait $pa; verdict "read of a" $? 0 ""
wait $pb; verdict "read of b" $? 0 ""
refused "members of both" 'rig12: a member of volume "b".*a member of volume "a"' swath read --length 4k "${a[@]:0:11}" "${b[0]}"
refused "all 24 at once" 'a member of volume "b"' swath read --length 4k "${a[@]}" "${b[@]}"
guest-probe load uring 4 "${a[@]}" >/tmp/a 2>&1 & pa=$!
swath-matrix -q --destructive --runtime 300ms --ramp-time 0ms --bs 4k,1m --numjobs 2 --no-pin "${b[@]}" >/tmp/b 2>&1 & pb=$!
wait $pa; verdict "load on a" $? 0 "$(cat /tmp/a)"
wait $pb; verdict "a benchmark on b" $? 0 "$(cat /tmp/b)"
says "detail of a" "Total Devices : 12" swath detail "${a[@]}"
check "wipe both" swath wipe "${a[@]}" "${b[@]}"
finish
