#!/bin/bash
# a drive is pulled during I/O, by every backend and every way into a volume, and comes back
#: -- uring
#: -- uring+iopoll
#: -- uring+sqpoll
#: -- aio
#: -- sync
#: -- sync+inline
#: SIZE=1G -- shared
#: SIZE=1G -- write
#: SIZE=1G -- matrix
. ./lib.sh
how=$1
check "create" swath create --name pool --chunk 64k "${drives[@]}"
case $how in
  shared) guest-probe shared 40 "${drives[@]}" >/tmp/out 2>&1 & ;;
  write) swath write "${drives[@]}" --length 3g </dev/zero >/tmp/out 2>&1 & ;;
  matrix) swath-matrix -q --destructive --runtime 60s --ramp-time 0ms --bs 64k --rw randread "${drives[@]}" >/tmp/out 2>&1 & ;;
  *) LOAD_AFTER=4 guest-probe load "$how" 80 "${drives[@]}" >/tmp/out 2>&1 & ;;
esac
pid=$!
case $how in shared | write | matrix) ;; *) within 60 grep -q "^load:" /tmp/out ;; esac
sleep 2.5
check "the drive is gone" pull 2
has_ended() { ! kill -0 $pid; }
within 60 has_ended; ended=$?
verdict "the process ends by itself" $ended 0 "$(cat /tmp/out /proc/$pid/task/*/stack 2>/dev/null)"
[ $ended = 0 ] || { kill -9 $pid; finish; }
wait $pid; status=$?
echo "---- $how (status $status)"; head -c 9000 /tmp/out
case $how in
  shared)
    grep -q "^close:.*device is gone" /tmp/out; verdict "the volume says why it stopped" $? 0 "$(cat /tmp/out)" ;;
  write | matrix)
    verdict "it fails" $status 1 "$(cat /tmp/out)"
    grep -q "rig2.*the device is gone" /tmp/out; verdict "and says why" $? 0 "$(cat /tmp/out)" ;;
  *)
    verdict "every request completed" $status 0 "$(cat /tmp/out)"
    grep -q "^poisoned \[Gone\]" /tmp/out; verdict "the volume is poisoned, and says why" $? 0 "$(cat /tmp/out)" ;;
esac
refused "all four named" "rig2" swath read --length 4k "${drives[@]}"
refused "three members: one is missing" "missing: member 2" swath read --length 4k /dev/rig0 /dev/rig1 /dev/rig3
says "detail of three" "State : FAILED, 1 missing" swath detail /dev/rig0 /dev/rig1 /dev/rig3
check "the drive is back" plug 2
check "the volume opens again" swath read --length 4k "${drives[@]}"
check "and can be written" guest-probe at write 0 65536 "${drives[@]}"
finish
