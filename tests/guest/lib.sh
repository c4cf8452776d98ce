# lib.sh - what the cases share. Sourced in a guest.
set -u -o pipefail
drives=(/dev/rig[0-9] /dev/rig[0-9][0-9])
[ -e "${drives[-1]}" ] || unset 'drives[-1]'
checks=0 failures=0

uptime_s() { cut -d. -f1 /proc/uptime; }

# needs PROGRAM...: ends the case when one is not there.
needs() {
  local x
  for x; do command -v "$x" >/dev/null || { echo "skipped: no $x"; exit 77; }; done
}

# A program within LIMIT seconds (200: much for an idle machine), or a function.
limited() {
  if declare -F "$1" >/dev/null; then "$@"; else timeout "${LIMIT:-200}" "$@"; fi
}

# verdict NAME STATUS WANTED OUTPUT: one check.
verdict() {
  checks=$((checks + 1))
  if [ "$2" = "$3" ]; then
    echo "ok   $1 [$(uptime_s) s]"
    if [ "${VERBOSE:-0}" = 1 ]; then head -c 3000 <<<"$4" | sed 's/^/     | /'; fi
  else
    failures=$((failures + 1))
    echo "FAIL $1 (status $2, wanted $3)"
    head -c 4000 <<<"$4" | sed 's/^/       /'
  fi
}

# check NAME COMMAND...: it must succeed.
check() {
  local name=$1 out status; shift
  out=$(limited "$@" 2>&1 | tr -d '\0'); status=$?
  verdict "$name" $status 0 "$out"
}

# refused NAME WORDS COMMAND...: it must end with status 1 and say WORDS, a regular expression.
refused() {
  local name=$1 words=$2 out status; shift 2
  out=$(limited "$@" 2>&1 | tr -d '\0'); status=$?
  if [ $status = 1 ] && ! grep -qE -- "$words" <<<"$out"; then status="1, without /$words/"; fi
  verdict "$name" "$status" 1 "$out"
}

# says NAME WORDS COMMAND...: it must say WORDS, whatever its status.
says() {
  local name=$1 words=$2 out; shift 2
  out=$(limited "$@" 2>&1 | tr -d '\0')
  grep -qE -- "$words" <<<"$out"
  verdict "$name" $? 0 "$out"
}

# blank DEVICE...: nothing that anybody could recognise is left.
blank() {
  local d
  for d; do
    blkdiscard -f "$d" 2>/dev/null || dd if=/dev/zero of="$d" bs=1M count=16 oflag=direct status=none
  done
}

# within SECONDS COMMAND...: tries until it succeeds.
within() {
  local end=$(($(uptime_s) + $1)); shift
  until "$@" 2>/dev/null; do
    [ "$(uptime_s)" -lt $end ] || return 1
    sleep 0.1
  done
}

# pull N, plug N: takes /dev/rigN out while it runs, and puts it back. The guest may be too busy for
# the first request, or for its answer.
is_gone() { ! [ -e "$(readlink -f "/dev/rig$1")" ]; }
pull() {
  monitor "device_del nvme$1"
  within 15 is_gone "$1" || { monitor "device_del nvme$1"; within 30 is_gone "$1"; }
}
is_back() { links; [ -b "$(readlink -f "/dev/rig$1")" ]; }
plug() {
  monitor "device_add nvme,id=nvme$1,bus=slot$1,drive=d$1,serial=rig$1" && within 30 is_back "$1"
}

finish() { echo "$checks checks, $failures failed"; exit $((failures > 0)); }
