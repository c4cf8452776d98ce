#!/bin/bash
# run.sh - the guest tests: Swath on real NVMe drives, in virtual machines made for the occasion.
#
#   run.sh                 every case, each in fresh guests
#   run.sh CASE...         these (files in cases/, without .sh)
#   run.sh --list          what there is
#
# A case is a script that runs as root in a guest with the drives /dev/rig0, /dev/rig1 and so on. Its
# lines that begin with "#:" say in which guests it runs, one each: settings of boot.sh, and after "--"
# arguments of its own. What a guest printed is kept in OUT/CASE-N.txt, the kernel's log beside it.
# Exit status: 1 when a check failed, 2 when no guest can be had here.
#
#   OUT=                  where output goes; default target/guest/out
#   SWATH_BINARIES=       a folder with swath, swath-matrix and guest-probe; default: they are built
#   SWATH_GUEST_...       see boot.sh
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
export SWATH_GUEST_CACHE=${SWATH_GUEST_CACHE:-$target/guest}
out=${OUT:-$target/guest/out}

cases=("$@")
((${#cases[@]})) || mapfile -t cases < <(cd "$here/cases" && ls -- *.sh)
cases=("${cases[@]%.sh}")
if [ "${1:-}" = --list ]; then
  for file in "$here"/cases/*.sh; do
    printf '%-12s %s\n' "$(basename "$file" .sh)" "$(sed -n '2s/^# //p' "$file")"
  done
  exit
fi
for case in "${cases[@]}"; do
  [ -e "$here/cases/$case.sh" ] || { echo "run.sh: there is no case $case; see --list" >&2; exit 2; }
done

"$here/boot.sh" --check || exit 2
if [ -z "${SWATH_BINARIES:-}" ]; then
  (cd "$root" && cargo build --quiet --workspace \
    --bin swath --bin swath-matrix --bin guest-probe) || exit 2
  SWATH_BINARIES=$target/debug
fi
mkdir -p "$out"
payload=$(mktemp -d)
trap 'rm -rf "$payload"' EXIT
cp "$here/lib.sh" "$here"/cases/*.sh "$payload"
for binary in swath swath-matrix guest-probe; do
  strip -o "$payload/$binary" "$SWATH_BINARIES/$binary" || exit 2
done

runs=0 checks=0 failed=() skipped=()
for case in "${cases[@]}"; do
  number=0
  while IFS= read -r line; do
    number=$((number + 1)) runs=$((runs + 1))
    settings=${line%%-- *} arguments=
    [ "$settings" = "$line" ] || arguments=${line#*-- }
    echo "==== $case $line"
    start=$SECONDS
    # The lines are ours, and made of plain words.
    # shellcheck disable=SC2086
    env $settings LOG="$out/$case-$number.log" \
      "$here/boot.sh" "$payload" "$case.sh" $arguments </dev/null 2>&1 |
      head -c 1000000 | tee "$out/$case-$number.txt" | grep -aE '^(FAIL|skipped:|boot.sh:|[0-9]+ checks)|^       '
    status=${PIPESTATUS[0]}
    made=$(sed -n 's/^\([0-9]*\) checks,.*/\1/p' "$out/$case-$number.txt")
    checks=$((checks + ${made:-0}))
    echo "==== $case $line: status $status after $((SECONDS - start)) s"
    case $status in
      0) ;;
      77) skipped+=("$case $line") ;;
      *) failed+=("$case $line") ;;
    esac
  done < <(sed -n 's/^#: *//p' "$here/cases/$case.sh")
done
((${#skipped[@]})) && printf 'skipped: %s\n' "${skipped[@]}"
((${#failed[@]})) && printf 'FAILED: %s\n' "${failed[@]}"
echo "$runs guests, $checks checks, ${#failed[@]} guests failed, ${#skipped[@]} skipped"
exit $((${#failed[@]} > 0))
