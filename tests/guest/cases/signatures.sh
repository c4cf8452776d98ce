#!/bin/bash
# what create refuses by name, what a forced creation and a wipe leave, as others see it
#: SIZE=512M
. ./lib.sh
needs mkfs.ext4 mkfs.xfs mkfs.btrfs sfdisk lvm mkswap cryptsetup blkid wipefs
a=/dev/rig0 b=/dev/rig1
blank $a $b

# Whatever other programs recognise there.
seen() { blkid -p "$1" 2>&1; wipefs "$1" 2>&1; mdadm --examine "$1" 2>&1 | grep -v 'No md superblock'; }

# recognised NAME WORDS DEVICE: refused by that name; taken by force and wiped, nobody sees a thing.
recognised() {
  local name=$1 words=$2 x=$3 out
  refused "$name: create" "$words" swath create "$x"
  check "$name: forced" swath create --force "$x"
  out=$(seen "$x"); [ -z "$out" ]; verdict "$name: no old signature after it" $? 0 "$out"
  check "$name: wipe" swath wipe "$x"
  out=$(seen "$x"); [ -z "$out" ]; verdict "$name: nothing at all after that" $? 0 "$out"
  check "$name: taken without force then" swath create "$x"
  check "$name: wiped again" swath wipe "$x"
  blank "$x"
}

mkfs.ext4 -q -F -L root $a; recognised ext4 'carries ext4 file system "root"' $a
mkfs.xfs -q -f -L fast $a; recognised xfs 'carries XFS file system "fast"' $a
mkfs.btrfs -q -f $a 2>/dev/null; recognised btrfs 'btrfs file system' $a
printf 'label: gpt\n,100M\n,\n' | sfdisk -q $a; recognised gpt 'GPT partition table' $a
blockdev --rereadpt $a 2>/dev/null
printf 'label: dos\n,100M\n,\n' | sfdisk -q $a; recognised mbr 'MBR partition table' $a
blockdev --rereadpt $a 2>/dev/null
lvm pvcreate -qq -y $a >/tmp/o 2>&1 || cat /tmp/o; recognised lvm 'LVM2 physical volume' $a
mkswap $a >/dev/null; recognised swap 'Linux swap space' $a
echo secretsecret | cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $a - >/tmp/o 2>&1 || cat /tmp/o
recognised luks 'LUKS' $a
modprobe -a raid0 raid1
for version in 1.2 1.1 1.0 0.90; do
  # mdadm makes no RAID0 with 0.90 any more.
  level=(--level=0); [ $version = 0.90 ] && level=(--level=1 --assume-clean)
  check "mdadm, metadata $version" mdadm -q --create /dev/md0 --run --metadata=$version "${level[@]}" --raid-devices=2 $a $b
  mdadm -q --stop /dev/md0
  for x in $a $b; do recognised "md $version on $x" "Linux md RAID member.*metadata $version" $x; done
done
refused "wipe of a blank drive" "no superblock" swath wipe $b
finish
