#!/bin/bash
# a drive is pulled while only one kind of operation is under way: what each of them becomes
#: -- uring
#: -- sync
. ./lib.sh
how=$1
for only in read write write-fua write-zeroes discard flush; do
  swath create --force --name pool --chunk 64k "${drives[@]}" >/dev/null || exit 9
  rm -f /tmp/out
  LOAD_ONLY=$only LOAD_AFTER=2 guest-probe load "$how" 80 "${drives[@]}" >/tmp/out 2>&1 & pid=$!
  within 60 grep -q "^load:" /tmp/out
  sleep 1.3
  check "$only: the drive is gone" pull 2
  has_ended() { ! kill -0 $pid; }
  within 40 has_ended; ended=$?
  verdict "$only: the process ends by itself" $ended 0 "$(cat /tmp/out /proc/$pid/task/*/stack 2>/dev/null)"
  [ $ended = 0 ] || { kill -9 $pid; finish; }
  wait $pid; verdict "$only: every request completed" $? 0 "$(cat /tmp/out)"
  grep -q "^${only%-fua} Gone" /tmp/out; verdict "$only: the device is gone" $? 0 "$(cat /tmp/out)"
  grep -q "^poisoned \[Gone\]" /tmp/out; verdict "$only: poisoned, by that" $? 0 "$(cat /tmp/out)"
  check "$only: the drive is back" plug 2
done
finish
