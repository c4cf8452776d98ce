#!/bin/bash
# a drive can be had by others as soon as its volume is closed
#: SIZE=256M
. ./lib.sh
check "create" swath create --name pool "${drives[@]}"
for how in uring uring+iopoll uring+sqpoll uring+pool aio sync; do
  VERBOSE=1 check "$how" guest-probe release $how 30 "${drives[@]}"
done
finish
