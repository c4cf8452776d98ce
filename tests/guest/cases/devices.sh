#!/bin/bash
# the inventory: sysfs, Identify and the SMART log of NVMe drives; who has one; drives that come and go
#: DRIVES=3 LBA=512,4096
#: DRIVES=3 APPEND=nvme_core.multipath=N EXTRA=native_hotplug -- native
. ./lib.sh
needs mkfs.ext4 sfdisk start-stop-daemon
says "three blank drives are ready" "^3 devices: 3 ready; no warnings" swath devices
says "model and serial in the table" "QEMU NVMe Ctrl +rig1 " swath devices

# One drive in full: from sysfs, from Identify, from the SMART log.
for words in "Serial : rig1$" "Model : QEMU NVMe Ctrl$" "Firmware : [0-9]+\.[0-9]" "Transport : pcie$" \
  "Size : 256.0 MiB" "Link : gen1 x1" "PCIe Address : 0000:" "Namespace : 1$" "Controller : live$" \
  "NVMe Version : 1\.[0-9]" "Block Format : [0-9]+ bytes, .*in use" "Temperature : 50 " \
  "Too Warm At : " "Spare : [0-9]+ % \(threshold [0-9]+ %\)" "Endurance Used : 0 %" \
  "Media Errors : 0$" "State : ready$"; do
  says "in full: $words" "$words" swath devices /dev/rig1
done
block=$(blockdev --getss /dev/rig1)
says "the format in use is the block" "Block Format : $block bytes, .*in use" swath devices /dev/rig1

# What the drive warns of, bit by bit. The sixth is of a memory region that these drives do not have.
warning=/machine/peripheral/nvme1
has_warning() {
  monitor "qom-set $warning smart_critical_warning $1"
  monitor "qom-get $warning smart_critical_warning" | grep -qx "$1"
}
bit=0
for words in "spare blocks are below" "temperature is beyond" "calls itself unreliable" \
  "takes no more writes" "backup of its volatile memory"; do
  within 30 has_warning $((1 << bit)) || exit 9
  says "critical warning, bit $bit" "^warning: .*rig1.*$words" swath devices
  bit=$((bit + 1))
done
within 30 has_warning 0 || exit 9
says "and gone again" "no warnings" swath devices

# What others may see.
cat >/tmp/other <<'END'
#!/bin/bash
exec start-stop-daemon -S -c other -x /payload/swath -- "$@"
END
chmod 755 /tmp/other
echo other:x:65534:65534::/:/bin/sh >/etc/passwd
echo other:x:65534: >/etc/group
says "another user sees what sysfs shows" "QEMU NVMe Ctrl +rig2 .* unknown: may not be read" /tmp/other devices
says "and is told that there is more" "^Of 3 devices less is shown" /tmp/other devices
check "with status 0" /tmp/other devices --json

# Who has a drive, and what lies on it.
check "a volume" swath create --name pool /dev/rig0 /dev/rig1
says "its members" "member 1 of 2 of \"pool\"" swath devices
says "and in numbers" "^3 devices: 1 ready, 2 in a volume" swath devices
says "as JSON" '"member_index": 1' swath devices --json
mkfs.ext4 -q /dev/rig2
says "a file system" "not ready: carries ext4 file system" swath devices /dev/rig2
mount /dev/rig2 /mnt
says "mounted" "not ready: mounted at /mnt" swath devices /dev/rig2
umount /mnt
blank /dev/rig2
sfdisk -q /dev/rig2 <<<',100M' 2>/dev/null
check "a partition" within 5 test -b "$(readlink -f /dev/rig2)p1"
says "partitions" "not ready: has a partition" swath devices /dev/rig2
refused "of which the whole disk is to be named" "name the whole disk" swath devices "$(readlink -f /dev/rig2)p1"

# A drive goes and comes.
swath devices --watch 1 --rounds 200 >/tmp/watch 2>&1 & watch=$!
within 10 grep -q "3 devices" /tmp/watch
check "a drive is pulled" pull 1
check "the watch says that it went" within 30 grep -q "nvme.*(rig1) went" /tmp/watch
# The port takes its power away some time after the drive is gone, and only then is the slot free.
check "it is put back" within 30 plug 1
check "the watch says that it came" within 30 grep -q "nvme.*(rig1) came" /tmp/watch
kill -INT $watch; wait $watch; verdict "the watch ends by ctrl-c, in order" $? 0 "$(tail -n 5 /tmp/watch)"
# The firmware's way of taking a drive out goes without a word of the kernel; the port's own has one.
[ "${1:-}" != native ] ||
  says "the kernel's word of the removal" "removed   pcieport .*Slot" swath devices --events
says "and of the insertion" "inserted   nvme nvme[0-9]+: pci function" swath devices --events
echo 1 >/proc/sys/kernel/dmesg_restrict
says "others are told the way out" "dmesg_restrict=0" /tmp/other devices --events
finish
