//! The inventory of machines that are made here: trees as sysfs has them, raw pages as drives return
//! them.
//!
//! What could go wrong: a link that runs below what it could and is not told, or one that is told and
//! does what it can; a drive that somebody has and that looks free; a page that is refused and takes
//! the rest with it; a device that the kernel made up among the disks; text that drives a terminal.

use swath_engine::ErrorKind;
use swath_engine::inventory::{
    CriticalWarning, Drive, RelativePerformance, Roots, Scope, Unread, Warning, drives,
};
use swath_tests::sysfs::{Machine, Pages, controller_page, health_page, namespace_page};

const GEN3_X4: (&str, u32) = ("8.0 GT/s PCIe", 4);
const GEN5_X2: (&str, u32) = ("32.0 GT/s PCIe", 2);
const GEN5_X4: (&str, u32) = ("32.0 GT/s PCIe", 4);
const GEN4_X4: (&str, u32) = ("16.0 GT/s PCIe", 4);

fn all_pages() -> Pages {
    Pages::All(controller_page(), namespace_page(), health_page())
}

/// Four gen5 drives: one good, one downtrained in speed, one in width, one in a gen4 slot.
fn server() -> Machine {
    let mut machine = Machine::new();
    machine.nvme(0, GEN5_X4, GEN5_X4, GEN5_X4);
    machine.nvme(1, GEN3_X4, GEN5_X4, GEN5_X4);
    machine.nvme(2, GEN5_X2, GEN5_X4, ("32.0 GT/s PCIe", 16));
    machine.nvme(10, GEN4_X4, GEN5_X4, GEN4_X4);
    for name in ["nvme0n1", "nvme1n1", "nvme2n1", "nvme10n1"] {
        machine.answers(name, all_pages());
    }
    machine
}

fn names(drives: &[Drive]) -> Vec<&str> {
    drives
        .iter()
        .map(|drive| drive.node.file_name().unwrap().to_str().unwrap())
        .collect()
}

#[test]
fn a_drive_tells_all_of_itself() {
    let machine = server();
    let found = machine.drives(&Scope::Disks);
    assert_eq!(names(&found), ["nvme0n1", "nvme1n1", "nvme2n1", "nvme10n1"]);
    let drive = &found[1];
    assert_eq!(drive.node, machine.roots().dev.join("nvme1n1"));
    assert_eq!(drive.model.as_deref(), Some("FAST DRIVE 3840G"));
    assert_eq!(drive.serial.as_deref(), Some("SN0001"));
    assert_eq!(drive.firmware.as_deref(), Some("FW1.0"));
    assert_eq!(drive.transport.as_deref(), Some("pcie"));
    assert_eq!(drive.pcie_address.as_deref(), Some("0000:41:00.0"));
    assert_eq!(drive.capacity_bytes, 3576 << 30);
    assert_eq!(drive.logical_block_bytes, Some(512));
    assert_eq!(drive.physical_block_bytes, Some(4096));
    assert_eq!(drive.numa_node, Some(1));
    assert_eq!(drive.write_cache.as_deref(), Some("write back"));
    assert_eq!(drive.temperature_celsius, Some(38));
    assert_eq!(drive.is_rotational, Some(false));
    assert!(drive.users.is_empty() && drive.partitions.is_empty());
    let nvme = drive.nvme.as_ref().unwrap();
    assert_eq!(nvme.namespace_id, Some(1));
    assert_eq!(nvme.controllers, ["nvme1"]);
    assert_eq!(nvme.unread, None);
    let formats = &nvme.namespace.as_ref().unwrap().formats;
    assert_eq!(formats[1].block_bytes, 4096);
    assert_eq!(formats[1].performance, RelativePerformance::Best);
    assert_eq!(nvme.health.as_ref().unwrap().endurance_used_percent, 2);
}

#[test]
fn links_below_what_both_ends_can_are_told_and_others_not() {
    let found = server().drives(&Scope::Disks);
    let downtrained: Vec<bool> = found
        .iter()
        .map(|drive| drive.link.unwrap().is_downtrained)
        .collect();
    assert_eq!(downtrained, [false, true, true, false]);
    assert!(found[3].link.unwrap().is_limited_by_port);
    let warnings = |index: usize| {
        let warnings = found[index].warnings();
        let texts = warnings.iter().map(ToString::to_string);
        texts.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(warnings(0), "");
    assert!(warnings(1).starts_with("its link runs at gen3 x4, and gen5 x4 is possible"));
    assert!(warnings(2).starts_with("its link runs at gen5 x2, and gen5 x4 is possible"));
    assert_eq!(warnings(3), "");
}

#[test]
fn a_drive_that_may_not_be_asked_shows_what_sysfs_shows() {
    let mut machine = server();
    machine.answers("nvme0n1", Pages::Denied);
    machine.answers(
        "nvme1n1",
        Pages::Identify(controller_page(), namespace_page()),
    );
    // The kernel's sensor is there for everybody.
    let sensor = "sys/class/nvme/nvme0/hwmon3/temp1_input";
    machine.file(sensor, "41850\n");
    let found = machine.drives(&Scope::Disks);
    assert_eq!(found[0].serial.as_deref(), Some("SN0000"));
    assert_eq!(found[0].temperature_celsius, Some(41));
    let nvme = found[0].nvme.as_ref().unwrap();
    assert!(nvme.controller.is_none() && nvme.namespace.is_none() && nvme.health.is_none());
    let wanted = Unread {
        needs_root: true,
        reason: "cannot be opened".to_owned(),
    };
    assert_eq!(nvme.unread.as_ref(), Some(&wanted));
    let nvme = found[1].nvme.as_ref().unwrap();
    assert!(nvme.controller.is_some() && nvme.namespace.is_some() && nvme.health.is_none());
    assert_eq!(nvme.unread.as_ref(), Some(&wanted));
    // A missing node is not cured by root.
    let mut machine = Machine::new();
    machine.nvme(0, GEN5_X4, GEN5_X4, GEN5_X4);
    let nvme = machine.drives(&Scope::Disks).remove(0).nvme.unwrap();
    assert!(!nvme.unread.unwrap().needs_root);
}

#[test]
fn each_critical_warning_reaches_the_drives_warnings() {
    for (bit, warning) in CriticalWarning::ALL.into_iter().enumerate() {
        let mut machine = Machine::new();
        machine.nvme(0, GEN5_X4, GEN5_X4, GEN5_X4);
        let mut health = health_page();
        health[0] = 1 << bit;
        machine.answers(
            "nvme0n1",
            Pages::All(controller_page(), namespace_page(), health),
        );
        let warnings = machine.drives(&Scope::Disks)[0].warnings();
        assert_eq!(warnings, [Warning::Critical { warning }]);
    }
}

#[test]
fn a_worn_warm_failing_drive_is_told_as_each_of_these_once() {
    let mut machine = Machine::new();
    let controller = machine.nvme(0, GEN5_X4, GEN5_X4, GEN5_X4);
    machine.file(&format!("sys/devices/{controller}/state"), "resetting\n");
    let mut health = health_page();
    health[1..3].copy_from_slice(&354_u16.to_le_bytes());
    health[3..6].copy_from_slice(&[9, 10, 104]);
    health[160] = 3;
    let answer = |health| Pages::All(controller_page(), namespace_page(), health);
    machine.answers("nvme0n1", answer(health.clone()));
    let wanted = [
        Warning::NotLive {
            state: "resetting".to_owned(),
        },
        Warning::MediaErrors { count: 3 },
        Warning::SpareLow {
            spare_percent: 9,
            threshold_percent: 10,
        },
        Warning::EnduranceUsedUp { used_percent: 104 },
        Warning::Hot {
            temperature_celsius: 81,
            warning_celsius: 80,
        },
    ];
    assert_eq!(machine.drives(&Scope::Disks)[0].warnings(), wanted);
    // What the drive says itself is not said again.
    health[0] = 0b11;
    machine.answers("nvme0n1", answer(health));
    let warnings = machine.drives(&Scope::Disks)[0].warnings();
    assert_eq!(warnings.len(), 5, "{warnings:?}");
    assert!(
        !warnings
            .iter()
            .any(|it| matches!(it, Warning::Hot { .. } | Warning::SpareLow { .. }))
    );
}

#[test]
fn who_has_a_drive_is_told() {
    let mut machine = Machine::new();
    let place = machine.nvme(0, GEN5_X4, GEN5_X4, GEN5_X4);
    let first = machine.partition(&place, "nvme0n1", 1);
    machine.partition(&place, "nvme0n1", 2);
    // nvme0n1 is 259:0, its partitions 259:1 and 259:2.
    machine.mount("259:2", "/data");
    machine.file(
        "proc/swaps",
        format!("Filename Type Size\n/dev/{first} partition 1024\n"),
    );
    let place = machine.nvme(1, GEN5_X4, GEN5_X4, GEN5_X4);
    machine.file(&format!("sys/devices/{place}/nvme1n1/holders/md127"), "");
    let found = machine.drives(&Scope::Disks);
    assert_eq!(found[0].partitions, ["nvme0n1p1", "nvme0n1p2"]);
    assert_eq!(
        found[0].users,
        ["nvme0n1p1 used as swap space", "nvme0n1p2 mounted at /data"]
    );
    assert_eq!(found[1].users, ["part of md127"]);
}

#[test]
fn btrfs_is_a_mount_too_though_its_number_is_its_own() {
    let mut machine = Machine::new();
    machine.nvme(0, GEN5_X4, GEN5_X4, GEN5_X4);
    let node = machine.roots().dev.join("nvme0n1");
    machine.file(
        "proc/self/mountinfo",
        format!("36 25 0:45 / /pool rw - btrfs {} rw\n", node.display()),
    );
    assert_eq!(machine.drives(&Scope::Disks)[0].users, ["mounted at /pool"]);
}

#[test]
fn other_disks_are_told_by_what_they_hang_on() {
    let mut machine = Machine::new();
    let host = "pci0000:00/0000:00:17.0/ata3/host2/target2:0:0/2:0:0:0";
    machine.block(&format!("{host}/block"), "sda", 16_000);
    let device = format!("sys/devices/{host}");
    machine.file(&format!("{device}/vendor"), "ATA     \n");
    machine.file(&format!("{device}/model"), "ST16000NM001G-2K\n");
    machine.file(&format!("{device}/rev"), "SN02\n");
    machine.file(&format!("{device}/type"), "0\n");
    machine.file(&format!("{device}/vpd_pg80"), b"\0\x80\0\x08ZL2ABCDE");
    machine.file(
        &format!("{device}/vpd_pgb1"),
        [0, 0xb1, 0, 60, 0x1c, 0x20, 0, 2],
    );
    std::os::unix::fs::symlink(
        machine.roots().sys.join(format!("devices/{host}")),
        machine.roots().sys.join("block/sda/device"),
    )
    .unwrap();

    let virtio = "pci0000:00/0000:00:02.0/virtio1";
    machine.block(&format!("{virtio}/block"), "vda", 256);
    machine.file(&format!("sys/devices/{virtio}/vendor"), "0x1af4\n");
    machine.file(
        &format!("sys/devices/{virtio}/block/vda/serial"),
        "disk-7\n",
    );
    std::os::unix::fs::symlink(
        machine.roots().sys.join(format!("devices/{virtio}")),
        machine.roots().sys.join("block/vda/device"),
    )
    .unwrap();

    let found = machine.drives(&Scope::Disks);
    assert_eq!(names(&found), ["sda", "vda"]);
    assert_eq!(found[0].model.as_deref(), Some("ST16000NM001G-2K"));
    assert_eq!(found[0].serial.as_deref(), Some("ZL2ABCDE"));
    assert_eq!(found[0].firmware.as_deref(), Some("SN02"));
    assert_eq!(found[0].transport.as_deref(), Some("sata"));
    assert_eq!(found[0].form_factor, Some("3.5 inch"));
    assert_eq!(found[0].pcie_address.as_deref(), Some("0000:00:17.0"));
    assert_eq!(found[0].link, None);
    assert_eq!(found[1].transport.as_deref(), Some("virtio"));
    assert_eq!(found[1].serial.as_deref(), Some("disk-7"));
    assert_eq!(found[1].model, None);
}

#[test]
fn what_the_kernel_makes_up_is_listed_only_when_asked_for() {
    let mut machine = Machine::new();
    machine.nvme(0, GEN5_X4, GEN5_X4, GEN5_X4);
    let number = machine.block("virtual/block", "loop0", 1);
    machine.block("virtual/block", "loop1", 0);
    machine.block("virtual/block", "md127", 7000);
    machine.block("virtual/block", "dm-0", 3);
    assert_eq!(names(&machine.drives(&Scope::Disks)), ["nvme0n1"]);
    let all = machine.drives(&Scope::All);
    assert_eq!(names(&all), ["dm-0", "loop0", "md127", "nvme0n1"]);
    let one = machine.drives(&Scope::Numbers(vec![number]));
    assert_eq!(names(&one), ["loop0"]);
}

#[test]
fn a_namespace_behind_several_paths_is_one_drive() {
    let mut machine = Machine::new();
    let subsystem = "virtual/nvme-subsystem/nvme-subsys0";
    let sys = machine.roots().sys;
    for (index, state) in [(0, "connecting"), (1, "live")] {
        let controller = format!("sys/devices/virtual/nvme-fabrics/ctl/nvme{index}");
        machine.file(&format!("{controller}/transport"), "tcp\n");
        machine.file(&format!("{controller}/state"), format!("{state}\n"));
        let address = format!("traddr=10.0.0.{index},trsvcid=4420\n");
        machine.file(&format!("{controller}/address"), address);
        machine.file(&format!("sys/devices/{subsystem}/model"), "Linux\n");
        std::os::unix::fs::symlink(
            sys.join(format!("devices/virtual/nvme-fabrics/ctl/nvme{index}")),
            sys.join(format!("devices/{subsystem}/nvme{index}")),
        )
        .unwrap();
        // Each path has a hidden disk.
        let hidden = format!("nvme0c{index}n1");
        machine.block(
            &format!("virtual/nvme-fabrics/ctl/nvme{index}"),
            &hidden,
            10,
        );
        machine.file(&format!("{controller}/{hidden}/hidden"), "1\n");
    }
    machine.block(subsystem, "nvme0n1", 10);
    std::os::unix::fs::symlink(
        sys.join(format!("devices/{subsystem}")),
        sys.join("block/nvme0n1/device"),
    )
    .unwrap();
    let found = machine.drives(&Scope::Disks);
    assert_eq!(names(&found), ["nvme0n1"]);
    assert_eq!(found[0].model.as_deref(), Some("Linux"));
    assert_eq!(found[0].transport.as_deref(), Some("tcp"));
    assert_eq!(
        found[0].address.as_deref(),
        Some("traddr=10.0.0.1,trsvcid=4420")
    );
    assert_eq!(found[0].link, None);
    assert_eq!(found[0].pcie_address, None);
    let nvme = found[0].nvme.as_ref().unwrap();
    assert_eq!(nvme.controllers, ["nvme1", "nvme0"]);
    assert_eq!(found[0].warnings(), []);
}

#[test]
fn a_name_cannot_drive_a_terminal() {
    let mut machine = Machine::new();
    let controller = machine.nvme(0, GEN5_X4, GEN5_X4, GEN5_X4);
    machine.file(
        &format!("sys/devices/{controller}/model"),
        b"EVIL\x1b[2J\x07\xff\n",
    );
    let model = machine.drives(&Scope::Disks).remove(0).model.unwrap();
    assert!(!model.contains(char::is_control), "{model:?}");
}

#[test]
fn a_tree_with_hardly_anything_in_it_is_listed_with_hardly_anything() {
    let machine = Machine::new();
    std::fs::create_dir_all(machine.roots().sys.join("block/nvme0n1")).unwrap();
    std::fs::create_dir_all(machine.roots().sys.join("block/sda/device")).unwrap();
    let found = machine.drives(&Scope::Disks);
    assert_eq!(names(&found), ["nvme0n1", "sda"]);
    assert_eq!(found[1].warnings(), [Warning::Empty]);
}

#[test]
fn a_machine_without_sysfs_is_an_error() {
    let machine = Machine::new();
    let roots = Roots {
        sys: machine.roots().sys.join("nothing"),
        ..machine.roots()
    };
    let error = drives(&roots, &machine, &Scope::Disks).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("is sysfs mounted?"), "{error}");
}
