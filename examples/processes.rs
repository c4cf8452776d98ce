//! One checkpoint, written by five processes: a parent that owns the store, and four children.
//!
//! `cargo run -p swath-examples --example processes`

use std::error::Error;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use swath_checkpoint::{
    BeginOptions, DType, FormatOptions, Lease, Receipt, Store, StoreOptions, VerifyOptions,
};
use swath_engine::{FileFill, create_file};
use swath_volume::{CreateOptions, Volume};

const RANKS: u8 = 4;
const WEIGHTS: usize = 3 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(rank), Some(members)) => child(rank.parse()?, Path::new(&members)),
        _ => parent(),
    }
}

/// Owns the volume, gives each child a part of the space, and commits what they wrote.
fn parent() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir_in(".")?;
    let members: Vec<PathBuf> = (0..4)
        .map(|number| directory.path().join(format!("member-{number}")))
        .collect();
    for member in &members {
        create_file(member, 16 << 20, FileFill::Zeroes)?;
    }
    let volume = Volume::create(&members, &CreateOptions::default())?;
    let store = Store::format(volume, &FormatOptions::default())?;

    let session = store.begin(120, BeginOptions::default())?;
    let mut children = Vec::new();
    for rank in 0..RANKS {
        // What its tensors have, and 1 MiB for its writer.
        let lease = session.lease(WEIGHTS as u64 + (1 << 20))?;
        children.push(start(rank, directory.path(), &lease)?);
    }
    // The parent may write, too.
    let mut writer = session.writer()?;
    writer.put("step", DType::U64, &[], &120_u64.to_le_bytes())?;
    writer.finish()?;

    for mut child in children {
        let mut text = String::new();
        let mut output = child.stdout.take().ok_or("a child without output")?;
        output.read_to_string(&mut text)?;
        if !child.wait()?.success() {
            // Nothing is committed. `session.revoke` would go on without the child's part.
            return Err("a child failed".into());
        }
        let receipt: Receipt = serde_json::from_str(&text)?;
        println!(
            "lease {}: {} tensors",
            receipt.lease_id,
            receipt.tensors.len()
        );
        session.accept(receipt)?;
    }
    let info = session.commit()?;
    println!("checkpoint {}: {} tensors", info.name, info.tensor_count);

    let report = store.verify(&VerifyOptions { deep: true }, &mut |_| true)?;
    assert!(report.is_clean());
    let checkpoint = store.get(120)?;
    let mut weights = vec![0; WEIGHTS];
    checkpoint
        .reader(swath_checkpoint::ReadOptions::default())?
        .read("rank 3: weights", &mut weights)?;
    assert!(weights.iter().all(|byte| *byte == 3));
    Ok(())
}

/// Starts this program again, and gives it its lease.
fn start(rank: u8, members: &Path, lease: &Lease) -> Result<Child, Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(rank.to_string())
        .arg(members)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    // Dropped here: the end of the lease is the end of the child's input.
    let mut input = child.stdin.take().ok_or("a child without input")?;
    input.write_all(serde_json::to_string(lease)?.as_bytes())?;
    Ok(child)
}

/// Writes within its lease, and hands the receipt back.
fn child(rank: u8, members: &Path) -> Result<(), Box<dyn Error>> {
    let lease: Lease = serde_json::from_reader(std::io::stdin())?;
    // The owner has the volume open meanwhile.
    let holder = lease.open(&[members], &StoreOptions::default())?;
    let mut writer = holder.writer()?;
    let weights = vec![rank; WEIGHTS];
    let shape = [WEIGHTS as u64 / 2];
    writer.put(
        &format!("rank {rank}: weights"),
        DType::F16,
        &shape,
        &weights,
    )?;
    writer.put(&format!("rank {rank}: bias"), DType::F32, &[2], &[rank; 8])?;
    writer.finish()?;
    let receipt = holder.finish()?;
    serde_json::to_writer(std::io::stdout(), &receipt)?;
    Ok(())
}
