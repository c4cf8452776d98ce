//! A whole run in miniature, through the same calls as the binary: members, cells, report.

use std::path::Path;
use std::time::Duration;

use swath_engine::{Backend, FileFill, QueueOptions};

use crate::report::{REPORT_FORMAT, Report, VolumeReport, render_tables, write_json};
use crate::{
    Campaign, DataState, Depth, Environment, Error, ErrorKind, Interrupt, MembersOptions, Pattern,
    Pinning, Plan, Progress, RunOptions, Runner, Side, Subject, SubjectOptions, carry_out, matrix,
};

const MEMBER_BYTES: u64 = 64 << 20;

fn subject_options(parent: &Path, fill: FileFill) -> SubjectOptions {
    SubjectOptions {
        chunk_bytes: Some(64 << 10),
        ..SubjectOptions::new(MembersOptions {
            parent: parent.to_path_buf(),
            count: 3,
            member_bytes: MEMBER_BYTES,
            fill,
        })
    }
}

fn run_options(backend: Backend, interrupt: &Interrupt) -> RunOptions {
    RunOptions {
        queue: QueueOptions {
            backend,
            ..QueueOptions::default()
        },
        ramp: Duration::from_millis(10),
        runtime: Duration::from_millis(50),
        batch: 32,
        reap: None,
        seed: 7,
        pinning: Pinning::Each,
        unique_writes: true,
        latencies: true,
        interrupt: interrupt.clone(),
    }
}

fn plan(patterns: &[Pattern], lanes: u32) -> Plan {
    Plan {
        // 192k is wider than a chunk and lies on all members.
        cells: matrix(
            &[4096, 192 << 10],
            patterns,
            &[Depth::Fixed(8)],
            &[lanes],
            3,
        ),
        rounds: 1,
        steady: None,
        sides: vec![Side::Volume, Side::Members],
        one: Duration::from_millis(60),
    }
}

fn prepare(options: &SubjectOptions) -> Result<Subject, Error> {
    Subject::prepare(options, &Interrupt::new(), &mut |_| ())
}

fn run(subject: &Subject, plan: &Plan, options: RunOptions) -> (Campaign, Report) {
    let runner = Runner::new(subject.volume(), options);
    let campaign = carry_out(plan, &runner, subject, &mut Progress::quiet());
    let mut volume = VolumeReport::of(subject.volume());
    volume.take_queues(&campaign.queues);
    let report = Report {
        kind: "matrix",
        format: REPORT_FORMAT,
        command: "test".to_owned(),
        version: "0",
        label: None,
        interrupted: campaign.is_interrupted(),
        seed: 7,
        rounds: plan.rounds,
        ramp_ms: 10,
        steady_state: plan.steady,
        precondition: None,
        notes: Vec::new(),
        environment: Environment::collect(subject.volume(), subject.preconditioning()),
        volume,
        cells: campaign.cells.clone(),
        verify: None,
    };
    (campaign, report)
}

#[test]
fn a_whole_run_measures_every_cell_on_every_backend_and_leaves_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let fill = FileFill::Incompressible { seed: 1 };
    let subject = prepare(&subject_options(parent.path(), fill)).unwrap();
    assert_eq!(subject.data_state(), DataState::Written);
    for backend in Backend::ALL {
        let plan = plan(&Pattern::ALL, 2);
        let (campaign, report) = run(&subject, &plan, run_options(backend, &Interrupt::new()));
        if let Some(error) = &campaign.stopped {
            // A backend this kernel does not have is not this test's business.
            eprintln!("skipped {backend}: {}", error.chain());
            continue;
        }
        assert_eq!(campaign.cells.len(), 8);
        if backend != Backend::Auto {
            assert_eq!(report.volume.backend, backend.to_string());
        }
        for cell in &campaign.cells {
            assert!(cell.ios > 0 && cell.bytes == cell.ios * cell.bs, "{cell:?}");
            assert!(cell.runtime_ms >= 50, "{cell:?}");
            assert!(
                cell.lat_ns.p50 > 0 && cell.lat_ns.max >= cell.lat_ns.p50,
                "{cell:?}"
            );
            assert!(cell.cpu_ns_per_io > 0.0, "{cell:?}");
            assert!(cell.baseline.as_ref().unwrap().efficiency > 0.0, "{cell:?}");
        }
        assert!(render_tables(&report).contains("192k"));
        write_json(&report, Vec::new()).unwrap();
    }
    drop(subject);
    assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
}

#[test]
fn reads_of_unwritten_members_are_called_so() {
    let parent = tempfile::tempdir().unwrap();
    let subject = prepare(&subject_options(parent.path(), FileFill::Unwritten)).unwrap();
    let plan = plan(&[Pattern::Read, Pattern::RandRead], 1);
    let (campaign, report) = run(
        &subject,
        &plan,
        run_options(Backend::Auto, &Interrupt::new()),
    );
    assert!(campaign.stopped.is_none(), "{:?}", campaign.stopped);
    assert!(
        campaign
            .cells
            .iter()
            .all(|cell| cell.state == DataState::Unwritten)
    );
    assert!(render_tables(&report).contains("u = unwritten"));
}

#[test]
fn an_interrupt_ends_a_run_and_keeps_what_was_measured() {
    let parent = tempfile::tempdir().unwrap();
    let fill = FileFill::Incompressible { seed: 1 };
    let subject = prepare(&subject_options(parent.path(), fill)).unwrap();
    let interrupt = Interrupt::new();
    let options = RunOptions {
        runtime: Duration::from_millis(300),
        ..run_options(Backend::Auto, &interrupt)
    };
    let plan = Plan {
        sides: vec![Side::Volume],
        ..plan(&Pattern::ALL, 1)
    };
    let (campaign, _) = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            interrupt.set();
        });
        run(&subject, &plan, options)
    });
    assert!(campaign.is_interrupted());
    assert!(campaign.cells.len() < 8, "{} cells", campaign.cells.len());
}

#[test]
fn members_without_a_volume_are_refused_and_given_up_only_when_told_so() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("plain");
    swath_engine::create_file(&path, MEMBER_BYTES, FileFill::Unwritten).unwrap();
    let given = SubjectOptions {
        members: vec![path.clone()],
        ..subject_options(directory.path(), FileFill::Zeroes)
    };
    let error = prepare(&given).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains("--destructive"), "{error}");
    assert!(
        std::fs::read(&path).unwrap().iter().all(|byte| *byte == 0),
        "nothing was written"
    );

    let subject = prepare(&SubjectOptions {
        destructive: true,
        ..given.clone()
    })
    .unwrap();
    assert_eq!(subject.data_state(), DataState::Written);
    drop(subject);
    // Now there is a volume, and it is used as it is.
    let subject = prepare(&SubjectOptions {
        writes: false,
        ..given.clone()
    })
    .unwrap();
    assert!(subject.volume().is_read_only());
    assert_eq!(subject.data_state(), DataState::Written);
    drop(subject);
    let other_chunk = SubjectOptions {
        chunk_bytes: Some(1 << 20),
        ..given
    };
    assert_eq!(prepare(&other_chunk).unwrap_err().exit_code(), 2);
    assert!(path.exists(), "members that were given are never removed");
}
