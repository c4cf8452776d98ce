#!/bin/bash
# boot.sh - runs a script in a throw-away QEMU guest with emulated NVMe drives; its exit status is the
# script's.
#
#   boot.sh FOLDER SCRIPT [ARG...]   the files of FOLDER are the guest's /payload, where SCRIPT runs
#   boot.sh --check                  says what is missing here, if anything
#
# Needs a Linux kernel with its modules (Debian's as packaged do), QEMU, and root's tools for file
# systems. No network, no root and no KVM: it is for correctness, never for speed. The guest lives in
# memory and is gone afterwards: an init, the programs below with their libraries, the modules below.
# In the guest:
#   /dev/rig0, /dev/rig1 ...   the drives in order (the numbers of nvmeXn1 vary); `links` makes them anew
#   monitor 'COMMAND'          a command for QEMU, such as device_del nvme2
#
# Settings, by the environment:
#   SWATH_GUEST_KERNEL=    the kernel's image; default /boot/vmlinuz-$(uname -r)
#   SWATH_GUEST_MODULES=   its modules, ROOT/lib/modules/VERSION; default those of the running kernel
#   SWATH_GUEST_CACHE=     where the guest's file system is kept; default a temporary folder
#   DRIVES=4 SIZE=256M     how many drives, and how large
#   LBA=512                their logical block size, or a list taken in turn: 512,4096
#   CPUS=2 MEMORY=2G TIMEOUT=600 (seconds)
#   APPEND=                more for the kernel's command line, commas for blanks
#   EXTRA=                 a function of this script that adds to QEMU's arguments
#   LOG=                   where the kernel's log is kept
# Status 124: it took too long. 125: no guest.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kernel=${SWATH_GUEST_KERNEL:-/boot/vmlinuz-$(uname -r)}
modules=${SWATH_GUEST_MODULES:-/lib/modules/$(uname -r)}
version=$(basename "$modules")

# Without these there is no guest.
NEEDED="bash busybox modprobe strip cpio qemu-system-x86_64"
TOOLS="bash modprobe blkdiscard blockdev dmsetup flock losetup mount umount mdadm
  cat cmp cp cut date dd grep head ls md5sum mkdir readlink sed seq sleep sort stat stty tail timeout tr
  truncate wc"
# Cases look for these and say what they skip.
OPTIONAL="blkid cryptsetup lvm mkfs.btrfs mkfs.ext4 mkfs.xfs mkswap sfdisk swapoff swapon wipefs"
MODULES="nvme virtio_blk sd_mod ext4 xfs btrfs raid0 raid1 configfs crc32c_generic
  dm-mod dm-flakey null_blk brd loop scsi_debug"

die() { echo "boot.sh: $*" >&2; exit 125; }

check() {
  local missing=() x
  for x in $NEEDED $TOOLS; do command -v "$x" >/dev/null || missing+=("$x"); done
  [ -r "$kernel" ] || missing+=("a kernel (SWATH_GUEST_KERNEL, not $kernel)")
  [ -r "$modules/modules.dep" ] || missing+=("its modules (SWATH_GUEST_MODULES, not $modules)")
  ((${#missing[@]} == 0)) || { printf 'boot.sh: missing here: %s\n' "${missing[@]}" >&2; exit 125; }
}

# add FILE...: copies files to the same place in $tree, programs with their libraries.
add() {
  local file
  for file; do
    { echo "$file"; ldd "$file" 2>/dev/null | grep -oE '/[^ ]+' || :; }
  done | sort -u | xargs cp -L --parents -t "$tree"
}

pack() { (cd "$1" && find . | cpio --quiet -o -H newc); }

# The guest's file system without what is tested: made once for a kernel and a list of programs.
make_base() {
  local base=$1 tree name path links
  tree=$(mktemp -d "$cache/tree.XXXXXX")
  mkdir -p "$tree"/usr/{bin,sbin,lib,lib64} "$tree"/{proc,sys,dev,run,tmp,root,etc,mnt,payload}
  for name in bin sbin lib lib64; do ln -s "usr/$name" "$tree/$name"; done
  for name in $TOOLS $OPTIONAL; do
    path=$(command -v "$name") || continue
    add "$(readlink -f "$path")"
    # Programs that go by several names.
    [ -e "$tree$path" ] || ln -s "$(readlink -f "$path")" "$tree$path"
  done
  cp "$(command -v busybox)" "$tree/usr/bin/busybox"
  for name in $(busybox --list); do
    [ -e "$tree/usr/bin/$name" ] || [ -e "$tree/usr/sbin/$name" ] || [ -L "$tree/usr/sbin/$name" ] ||
      ln -s busybox "$tree/usr/bin/$name"
  done
  links=$tree/usr/lib/modules/$version
  mkdir -p "$links"
  for name in $MODULES; do
    modprobe -d "${modules%/lib/modules/*}/" -S "$version" --show-depends "$name" 2>/dev/null || :
  done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u | while read -r path; do
    name=$links/${path#*/modules/"$version"/}
    mkdir -p "${name%/*}"
    case $path in
      *.xz) xz -dc "$path" >"${name%.xz}" ;;
      *.zst) zstd -qdc "$path" >"${name%.zst}" ;;
      *) cp "$path" "$name" ;;
    esac
  done
  cp "$modules"/modules.{order,builtin,builtin.modinfo} "$links/"
  depmod -b "$tree" "$version"
  install -m 755 "$here/init.sh" "$tree/init"
  pack "$tree" >"$base.new"
  mv "$base.new" "$base"
  rm -rf "$tree"
}

# ---- what single cases add to the machine -------------------------------------------------------

# A disk of another kind.
virtio_disk() {
  truncate -s 256M "$state/virtio.raw"
  qemu+=(-drive "if=none,id=v0,format=raw,file=$state/virtio.raw" -device virtio-blk-pci,drive=v0)
}

# Drives are pulled and put in by the ports' own means rather than by the firmware's.
native_hotplug() {
  qemu+=(-global ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off)
}

# A drive /dev/rig9 on a NUMA node of its own.
far_drive() {
  truncate -s 256M "$state/far.raw"
  qemu+=(-object memory-backend-ram,id=m0,size=1G -object memory-backend-ram,id=m1,size=1G
    -numa node,nodeid=0,cpus=0,memdev=m0 -numa node,nodeid=1,cpus=1,memdev=m1
    -device pxb-pcie,id=far,bus=pcie.0,bus_nr=64,numa_node=1
    -device pcie-root-port,id=farport,bus=far,chassis=60
    -drive "if=none,id=x9,format=raw,file=$state/far.raw"
    -device nvme,id=nvme9,bus=farport,drive=x9,serial=rig9)
}

# ---- one guest ----------------------------------------------------------------------------------

check
[ "${1:-}" != --check ] || exit 0
[ $# -ge 2 ] || { sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0"; exit 125; }
folder=$1; shift
state=$(mktemp -d)
pid=
trap 'if [ "$pid" ]; then kill -9 "$pid" 2>/dev/null || :; fi; rm -rf "$state"' EXIT
cache=${SWATH_GUEST_CACHE:-$state}
mkdir -p "$cache"
id=$(cat "$0" "$here/init.sh" "$modules/modules.dep" | cksum | cut -d' ' -f1)
base=$cache/base-$id.cpio
[ -e "$base" ] || { rm -f "$cache"/base-*.cpio; make_base "$base"; }

drives=${DRIVES:-4} cpus=${CPUS:-2}
mkdir -p "$state/tree/payload"
tree=$state/tree
cp "$folder"/* "$tree/payload"
for file in "$tree"/payload/*; do
  ldd "$file" 2>/dev/null | grep -oE '/[^ ]+' || :
done | sort -u | xargs -r cp -L --parents -t "$state/tree"
{ echo "drives=$drives"; printf 'job() {'; printf ' %q' bash "$@"; echo '; }'; } >"$tree/payload/job"
# The kernel takes archives that follow each other as one. Its /lib is a link already.
if [ -d "$tree/lib" ]; then mkdir -p "$tree/usr"; cp -r "$tree/lib/." "$tree/usr/lib/"; rm -rf "$tree/lib"; fi
if [ -d "$tree/lib64" ]; then mkdir -p "$tree/usr/lib64"; cp -r "$tree/lib64/." "$tree/usr/lib64/"; rm -rf "$tree/lib64"; fi
{ cat "$base"; pack "$tree"; } >"$state/initrd"
rm -rf "$tree"

log=${LOG:-$state/kernel.log}
: >"$log"
# The timer's check at boot fails now and then where the host is busy.
append="console=ttyS0 loglevel=7 panic=-1 mitigations=off no_timer_check nvme.poll_queues=$((cpus < 2 ? cpus : 2))"
qemu=(-machine q35 -cpu max -accel "tcg,thread=multi" -smp "$cpus" -m "${MEMORY:-2G}"
  -nodefaults -no-reboot -display none -kernel "$kernel" -initrd "$state/initrd"
  -append "$append ${APPEND:+${APPEND//,/ }}"
  # ttyS0: the kernel's log. ttyS1: what the script prints. ttyS2: QEMU's own monitor.
  -serial "file:$log"
  -chardev "stdio,id=out,signal=off" -serial chardev:out
  -chardev "socket,id=monitor,path=$state/monitor,server=on,wait=off" -mon monitor,mode=control
  -chardev "socket,id=line,path=$state/monitor"
  # Its interrupt would be ttyS0's, and QEMU lets either port take the other's away: a line then waits
  # until something else comes.
  -device isa-serial,chardev=line,index=2,irq=5)
IFS=, read -ra block_bytes <<<"${LBA:-512}"
for ((i = 0; i < drives; i++)); do
  b=${block_bytes[i % ${#block_bytes[@]}]}
  truncate -s "${SIZE:-256M}" "$state/nvme$i.raw"
  qemu+=(-blockdev "driver=raw,node-name=d$i,discard=unmap,file.driver=file,file.filename=$state/nvme$i.raw,file.discard=unmap"
    -device "pcie-root-port,id=slot$i,chassis=$((i + 1)),slot=$((i + 1))"
    -device "nvme,id=nvme$i,bus=slot$i,drive=d$i,serial=rig$i,logical_block_size=$b,physical_block_size=$b")
done
if [ "${EXTRA:-}" ]; then "$EXTRA"; fi

qemu-system-x86_64 "${qemu[@]}" </dev/null 2>"$state/qemu.log" & pid=$!
end=$((SECONDS + ${TIMEOUT:-600}))
while kill -0 "$pid" 2>/dev/null; do
  if ((SECONDS >= end || $(stat -c %s "$log") > 100000000)); then
    tail -n 15 "$log" >&2
    echo "boot.sh: stopped: it took too long, or its kernel said too much" >&2
    exit 124
  fi
  sleep 0.2
done
wait "$pid" || :
pid=
status=$(sed -n 's/.*swath guest: status \([0-9]*\).*/\1/p' "$log" | tail -n 1)
[ "$status" ] || { head -n 5 "$state/qemu.log" >&2; tail -n 20 "$log" >&2; die "the guest ended without a status"; }
exit "$status"
