#!/bin/bash
# checkpoints on drives: saved, loaded, verified, removed; a saving process killed at any moment
#: LBA=512
#: LBA=512,4096 DRIVES=3
. ./lib.sh
volume=$(IFS=,; echo "${drives[*]}")
check "create" swath create --name pool --chunk 64k "${drives[@]}"
mkdir /tmp/in
for name in a b; do head -c 9000001 /dev/urandom >/tmp/in/$name; done
check "save" swath save "$volume" --step 1 /tmp/in/a /tmp/in/b
loads() { rm -rf /tmp/out; swath load "$volume" --step "$1" --out /tmp/out && cmp /tmp/in/a /tmp/out/a && cmp /tmp/in/b /tmp/out/b; }
loads 1 >/tmp/o 2>&1; verdict "load" $? 0 "$(cat /tmp/o)"
check "verify" swath verify "$volume" --deep
check "rm" swath rm "$volume" --step 1
refused "load what was removed" "1" swath load "$volume" --step 1 --out /tmp/none

# Every save is killed later than the one before, until one is let finish.
check "save the first" swath save "$volume" --step 1 /tmp/in/a /tmp/in/b
last=1 killed=0
for delay in 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5 0.6 0.7 0.8 0.9 1 1.2 1.5 2 3 4; do
  step=$((last + 1))
  swath save "$volume" --step $step /tmp/in/a /tmp/in/b >/tmp/o 2>&1 & pid=$!
  sleep $delay
  if kill -9 $pid 2>/dev/null; then killed=$((killed + 1)); fi
  wait $pid; status=$?
  # Its rings are torn down a moment after its end.
  within 10 swath ls "$volume" --json >/tmp/ls; verdict "killed after $delay s: it opens" $? 0 "$(cat /tmp/ls)"
  latest=$(grep -oE '"step": *[0-9]+' /tmp/ls | grep -oE '[0-9]+' | tail -n 1)
  [ "$latest" = $last ] || { [ "$latest" = $step ] && last=$step; }
  verdict "killed after $delay s: step $latest is the last" $? 0 "$(cat /tmp/ls)"
  [ $status != 0 ] || [ "$latest" = $step ]; verdict "killed after $delay s: what was acknowledged is there" $? 0 "$(cat /tmp/o)"
  check "killed after $delay s: verify" swath verify "$volume" --deep
  loads "$last" >/tmp/o 2>&1; verdict "killed after $delay s: load" $? 0 "$(cat /tmp/o)"
  if [ "$last" -gt 3 ]; then check "retain" swath retain "$volume" --keep-last 2; fi
done
echo "$killed saves were killed, $((last - 1)) became steps"
[ $killed -gt 3 ]; verdict "some were killed" $? 0 "$killed"
finish
