#!/bin/busybox sh
# init.sh - the first process of a guest: mounts what is needed, waits for the drives, runs the job of
# /payload, tells its status to the kernel's log, and ends the guest.
export PATH=/payload:/usr/sbin:/usr/bin HOME=/root DM_DISABLE_UDEV=1
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp
ln -sf /proc/mounts /etc/mtab
ln -s /proc/self/fd /dev/fd
modprobe -a configfs nvme
mount -t configfs configfs /sys/kernel/config
ip link set lo up

cat >/usr/sbin/links <<'END'
#!/bin/sh
# /dev/rigN for the drive with the serial number rigN, whatever its numbers in this boot.
for controller in /sys/class/nvme/nvme*; do
  serial=$(tr -d ' ' <"$controller/serial")
  name=$(cd "$controller" && ls -d nvme*n1 2>/dev/null) || continue
  # With several paths the drive is that of the subsystem: nvme0c0n1 is nvme0n1.
  name=${name%c*n1}
  case $serial in rig*) ln -sf "${name%n1}n1" "/dev/$serial" ;; esac
done
END
cat >/usr/sbin/monitor <<'END'
#!/bin/sh
# A command for QEMU's monitor. Its answer is read for two seconds; status 1 when it is an error.
answer=$( { timeout 2 cat <&3 & echo "$1" >&3; wait; } 3<>/dev/ttyS2 | tr -d '\r' |
  grep -v "$(printf '\033')\|(qemu)\|monitor - type" )
[ -z "$answer" ] || echo "$answer"
case $answer in *Error*) exit 1 ;; esac
END
chmod 755 /usr/sbin/links /usr/sbin/monitor

. /payload/job
tries=0
while [ "$(ls -d /sys/class/nvme/nvme*/nvme*n1 2>/dev/null | wc -l)" -lt "$drives" ]; do
  tries=$((tries + 1))
  [ $tries -lt 600 ] || { echo "swath guest: the drives do not come" >/dev/kmsg; poweroff -f; }
  usleep 100000
done
links
stty -F /dev/ttyS1 raw -echo
stty -F /dev/ttyS2 raw -echo
(cd /payload && job) </dev/null >/dev/ttyS1 2>&1
status=$?
sync
echo "swath guest: status $status" >/dev/kmsg
poweroff -f
