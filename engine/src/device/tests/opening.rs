//! Who may open what, and what the refusals say.

use super::*;

#[test]
fn a_second_writer_is_refused_and_readers_share() {
    let folder = Folder::on_disk();
    let file = folder.file("f", MIB);
    let disk = Loop::new(512, MIB, &[]);
    let paths = [Some(&file), disk.as_ref().map(|disk| &disk.path)];
    for path in paths.into_iter().flatten() {
        let writer = open(path, OpenOptions::read_write()).unwrap();
        for options in [OpenOptions::read_write(), OpenOptions::read_only()] {
            let error = refused(path, options);
            assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
        }
        // A look takes no lock.
        open(path, OpenOptions::look()).unwrap();
        drop(writer);

        let first = open(path, OpenOptions::read_only()).unwrap();
        let second = open(path, OpenOptions::read_only()).unwrap();
        assert_eq!(
            refused(path, OpenOptions::read_write()).kind(),
            ErrorKind::InUse
        );
        drop((first, second));
        open(path, OpenOptions::read_write()).unwrap();
    }
}

#[test]
fn a_lock_that_is_let_go_of_soon_is_waited_for() {
    let folder = Folder::on_disk();
    let path = folder.file("f", MIB);
    let holder = open(&path, OpenOptions::read_write()).unwrap();
    let thread = std::thread::spawn(move || drop(holder));
    // However long a busy machine takes to run the thread, one of these finds the lock free.
    let opened = (0..100).any(|_| open(&path, OpenOptions::read_write()).is_ok());
    assert!(opened);
    thread.join().unwrap();
}

#[test]
fn the_holder_of_a_lock_is_named() {
    let folder = Folder::on_disk();
    let path = folder.file("f", MIB);
    let _holder = open(&path, OpenOptions::read_write()).unwrap();
    let text = refused(&path, OpenOptions::read_write()).to_string();
    // btrfs and overlayfs show other device numbers in /proc/locks than fstat does.
    assert!(
        text.contains("this process itself") || text.contains("another process"),
        "{text}"
    );
}

#[test]
fn a_disk_with_a_mounted_file_system_is_in_use() {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let disk = mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let kind = fields.iter().position(|field| *field == "-")? + 1;
        let facts = fs::read_to_string(format!("/sys/dev/block/{}/uevent", fields[2])).ok()?;
        let name = facts
            .lines()
            .find_map(|line| line.strip_prefix("DEVNAME="))?;
        let path = Path::new("/dev").join(name);
        (["ext4", "xfs"].contains(&fields[kind]) && File::open(&path).is_ok()).then_some(path)
    });
    let Some(disk) = disk else {
        skipped("no disk that is mounted can be opened");
        return;
    };
    // Opening alone changes nothing on a disk, and this open is refused.
    let error = refused(&disk, OpenOptions::read_write());
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains("mounted at /"), "{error}");
}

#[test]
fn what_is_no_device_is_refused_by_name_and_without_hanging() {
    let folder = Folder::on_disk();
    let fifo = folder.path("fifo");
    if !Command::new("mkfifo")
        .arg(&fifo)
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("not tried: no mkfifo here");
        fs::create_dir(&fifo).unwrap();
    }
    let socket = folder.path("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for options in [
        OpenOptions::read_write(),
        OpenOptions::read_only(),
        OpenOptions::look(),
    ] {
        for (path, word) in [
            (&folder.0, "directory"),
            (&PathBuf::from("/dev/null"), "character device"),
            (&socket, "socket"),
        ] {
            let error = refused(path, options);
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(word), "{error}");
        }
        assert_eq!(refused(&fifo, options).kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_missing_path_is_not_found() {
    let folder = Folder::on_disk();
    let dangling = folder.path("dangling");
    symlink("nowhere", &dangling).unwrap();
    let circle = folder.path("circle");
    symlink("circle", &circle).unwrap();
    let file = folder.file("f", 4096);
    let options = OpenOptions::read_write();
    assert_eq!(
        refused(folder.path("missing"), options).kind(),
        ErrorKind::NotFound
    );
    assert_eq!(refused(&dangling, options).kind(), ErrorKind::NotFound);
    assert_eq!(
        refused(file.join("below"), options).kind(),
        ErrorKind::NotFound
    );
    assert_eq!(refused(&circle, options).kind(), ErrorKind::InvalidInput);
    assert_eq!(open("", options).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(
        open("a\0b", options).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[test]
fn a_device_that_is_read_only_can_only_be_read() {
    let Some(disk) = Loop::new(512, MIB, &["--read-only"]) else {
        return;
    };
    let error = refused(&disk.path, OpenOptions::read_write());
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("read-only"), "{error}");
    let device = open(&disk.path, OpenOptions::read_only()).unwrap();
    assert_eq!(device.access(), Access::Read);
}

/// Runs `work` on a thread without root's right to open everything; false where this is not root.
fn without_rights(work: impl FnOnce() + Send + 'static) -> bool {
    if !rustix::process::geteuid().is_root() {
        skipped("not root, cannot change who is asking");
        return false;
    }
    let thread = std::thread::spawn(move || {
        // SAFETY: the call takes a number; it changes the rights of this thread alone, which ends
        // with `work`.
        unsafe { libc::syscall(libc::SYS_setfsuid, 65534) };
        work();
    });
    thread.join().unwrap();
    true
}

#[test]
fn a_file_of_somebody_else_is_denied_or_read_with_access_time() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::on_disk();
    let path = folder.file("f", MIB);
    let (denied, readable) = (path.clone(), path.clone());
    let asked = without_rights(move || {
        let error = refused(&denied, OpenOptions::read_only());
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("run as root"), "{error}");
    });
    if !asked {
        return;
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    without_rights(move || {
        // O_NOATIME is refused to all but the owner.
        open(&readable, OpenOptions::read_only()).unwrap();
    });
}

#[test]
fn a_file_system_without_direct_io_is_refused_or_read_buffered() {
    let path = Path::new("/proc/version");
    if !path.exists() {
        skipped("no /proc here");
        return;
    }
    let error = refused(path, OpenOptions::read_only());
    assert_eq!(error.kind(), ErrorKind::NotDirect);
    assert!(error.to_string().contains("proc"), "{error}");
    let device = open(path, OpenOptions::look()).unwrap();
    assert!(!device.is_direct());
    let flags = rustix::fs::fcntl_getfl(device.descriptor().unwrap()).unwrap();
    assert!(!flags.contains(rustix::fs::OFlags::DIRECT));
}

#[test]
fn failed_opens_leak_no_descriptor() {
    let folder = Folder::on_disk();
    let file = folder.file("f", MIB);
    let missing = folder.path("missing");
    let _writer = open(&file, OpenOptions::read_write()).unwrap();
    let before = folder.open_descriptors();
    assert_eq!(before, 1);
    for _ in 0..1000 {
        open(&missing, OpenOptions::read_write()).unwrap_err();
        open(&folder.0, OpenOptions::read_only()).unwrap_err();
        create_file(&file, MIB, FileFill::Zeroes).unwrap_err();
    }
    // Each of these was open when it was refused, and waited a moment for the lock.
    for _ in 0..5 {
        open(&file, OpenOptions::read_write()).unwrap_err();
    }
    assert_eq!(folder.open_descriptors(), before);
    // These are refused after the open as well, without a wait.
    if let Some(disk) = Loop::new(512, MIB, &["--read-only"]) {
        let count = || {
            fs::read_dir("/proc/self/fd")
                .unwrap()
                .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
                .filter(|target| *target == disk.path)
                .count()
        };
        for _ in 0..1000 {
            open(&disk.path, OpenOptions::read_write()).unwrap_err();
        }
        assert_eq!(count(), 0);
    }
}

const SEAT: Seat = Seat {
    epoch: 7,
    number: 3,
};

#[test]
fn a_guest_writes_beside_its_owner_and_nobody_else_does() {
    let folder = Folder::on_disk();
    let file = folder.file("f", MIB);
    let disk = Loop::new(512, MIB, &[]);
    let paths = [Some(&file), disk.as_ref().map(|disk| &disk.path)];
    for path in paths.into_iter().flatten() {
        let guest = OpenOptions::guest(SEAT);
        assert_eq!(refused(path, guest).kind(), ErrorKind::Closed);
        let owner = open(path, OpenOptions::read_write()).unwrap();
        // Nobody was invited.
        assert_eq!(refused(path, guest).kind(), ErrorKind::Closed);
        owner.admit(6).unwrap();
        assert_eq!(refused(path, guest).kind(), ErrorKind::Closed);
        owner.admit(7).unwrap();
        let first = open(path, guest).unwrap();
        first.check_owner().unwrap();
        // One on each seat; a look takes none.
        assert_eq!(refused(path, guest).kind(), ErrorKind::InUse);
        open(path, OpenOptions::look()).unwrap();
        assert!(first.admit(7).is_err() && first.close_seat(3).is_err());

        let error = owner.close_seat(3).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InUse, "{error}");
        drop(first);
        owner.close_seat(3).unwrap();
        owner.close_seat(3).unwrap();
        assert_eq!(refused(path, guest).kind(), ErrorKind::InUse);

        let other = OpenOptions::guest(Seat { number: 4, ..SEAT });
        let second = open(path, other).unwrap();
        drop(owner);
        // The owner is gone and a guest is left: no new guests, no new owner.
        assert_eq!(second.check_owner().unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(refused(path, guest).kind(), ErrorKind::Closed);
        let error = refused(path, OpenOptions::read_write());
        assert_eq!(error.kind(), ErrorKind::InUse);
        assert!(error.to_string().contains("wrote beside it"), "{error}");
        open(path, OpenOptions::read_only()).unwrap();
        drop(second);

        // The next owner has another epoch.
        let owner = open(path, OpenOptions::read_write()).unwrap();
        owner.admit(8).unwrap();
        assert_eq!(refused(path, other).kind(), ErrorKind::Closed);
    }
}

#[test]
fn a_reader_has_no_guests_and_numbers_are_bounded() {
    let folder = Folder::on_disk();
    let path = folder.file("f", MIB);
    let reader = open(&path, OpenOptions::read_only()).unwrap();
    assert!(reader.admit(1).is_err());
    drop(reader);
    let owner = open(&path, OpenOptions::read_write()).unwrap();
    for number in [1 << 61, u64::MAX] {
        let kind = ErrorKind::InvalidInput;
        assert_eq!(owner.admit(number).unwrap_err().kind(), kind);
        assert_eq!(owner.close_seat(number).unwrap_err().kind(), kind);
    }
    let last = Seat {
        epoch: (1 << 61) - 1,
        number: (1 << 61) - 1,
    };
    owner.admit(last.epoch).unwrap();
    open(&path, OpenOptions::guest(last)).unwrap();
}
