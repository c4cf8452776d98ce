#!/bin/bash
# drives whose queues are smaller than what is in flight
#: APPEND=nvme.io_queue_depth=3
. ./lib.sh
[ "$(</sys/module/nvme/parameters/io_queue_depth)" = 3 ]; verdict "queues of two" $? 0 ""
for how in uring uring+iopoll uring+iopoll+depth128 uring+iopoll+pool aio sync; do
  check "every operation, $how" guest-probe operations $how "${drives[@]}"
done
check "create" swath create --force --chunk 64k "${drives[@]}"
out=$(guest-probe load uring+iopoll+depth128 3 "${drives[@]}"); status=$?
grep -q "^not poisoned" <<<"$out" || status="$status, poisoned"
verdict "load, IOPOLL" "$status" 0 "$out"
check "a benchmark, IOPOLL" swath-matrix -q --destructive --runtime 1s --ramp-time 0ms --bs 4k,1m --iopoll \
  --backend uring --iodepth 256 --no-pin "${drives[@]}"
finish
