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
# A command for QEMU's monitor, over QMP: its answer has our number, so a late one is nobody else's.
# Status 1 when the answer is an error, 2 when there is none.
exec 3<>/dev/ttyS2
echo '{"execute": "qmp_capabilities"}' >&3
echo '{"execute": "human-monitor-command", "arguments": {"command-line": "'"$1"'"}, "id": "'$$'"}' >&3
answer=$(timeout 10 grep -a -m 1 "\"id\": \"$$\"" <&3) || { echo "no answer of the monitor"; exit 2; }
answer=$(printf '%b' "$(echo "$answer" | sed 's/.*"return": "\(.*\)", "id".*/\1/')" | tr -d '\r')
[ -z "$answer" ] || echo "$answer"
case $answer in *[Ee]rror*) exit 1 ;; esac
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
# Held open: what a port has received is lost when its last user closes it.
exec 9<>/dev/ttyS2
stty -F /dev/ttyS2 raw -echo
(cd /payload && job) </dev/null >/dev/ttyS1 2>&1 9>&-
status=$?
sync
echo "swath guest: status $status" >/dev/kmsg
poweroff -f
