//! `swath show`: the tensors of a checkpoint, and where they lie.

use clap::Args;
use serde::Serialize;
use swath_checkpoint::extent::Run;
use swath_checkpoint::index::TensorEntry;
use swath_checkpoint::safetensors::is_hidden;
use swath_checkpoint::{Checkpoint, CheckpointInfo, DType, DevicePlace};

use super::store::{StoreArguments, Which, plain};
use crate::bytes::{Exact, Short};
use crate::failure::Result;
use crate::output::{self, Text};
use crate::time::utc;

/// Show a checkpoint: its tensors, with type, shape, size and place
#[derive(Debug, Args)]
#[command(after_help = "\
The place is the member and the offset on it where a tensor begins; --json has all of them.

Examples:
  swath show /data/volume                the newest
  swath show /data/volume --step 100 --json")]
pub(crate) struct Show {
    #[command(flatten)]
    which: Which,

    /// Show the tensors too that only serve to give the files again
    #[arg(long)]
    all: bool,

    /// Print it as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    store: StoreArguments,
}

/// The answer.
#[derive(Debug, Serialize)]
struct Report<'a> {
    command: &'static str,
    checkpoint: CheckpointInfo,
    hidden_tensor_count: u64,
    tensors: Vec<TensorReport<'a>>,
}

#[derive(Debug, Serialize)]
struct TensorReport<'a> {
    name: &'a str,
    dtype: DType,
    shape: &'a [u64],
    bytes: u64,
    /// On the volume.
    runs: &'a [Run],
    /// On its members.
    places: Vec<DevicePlace>,
}

impl Show {
    pub(super) fn run(&self) -> Result<()> {
        let store = self.store.open(true)?;
        let checkpoint = self.which.open(&store)?;
        let tensors = checkpoint.tensors().iter();
        let shown = tensors.filter(|tensor| self.all || !is_hidden(&tensor.name));
        let hidden = checkpoint.tensors().iter();
        let hidden = hidden.filter(|tensor| is_hidden(&tensor.name)).count() as u64;
        if self.json {
            return output::json(&Report {
                command: "show",
                checkpoint: checkpoint.info(),
                hidden_tensor_count: hidden,
                tensors: shown.map(|tensor| report(&checkpoint, tensor)).collect(),
            });
        }
        let mut text = Text::default();
        let info = checkpoint.info();
        let count = info.tensor_count - hidden;
        let tensor_count = match hidden {
            0 => count.to_string(),
            hidden => format!("{count}, and {hidden} that only serve to give the files again"),
        };
        text.field("Name", &info.name)
            .field("Creation Time", &utc(info.created_unix_s))
            .field("Tensors", &tensor_count)
            .field("Data Size", &Exact(info.data_bytes))
            .field("On Volume", &Exact(info.occupied_bytes));
        if info.pinned {
            text.field("Pinned", &"yes");
        }
        for (key, value) in &info.metadata {
            text.field(&plain(key), &plain(value));
        }
        let rows: Vec<_> = shown.map(|tensor| row(&checkpoint, tensor)).collect();
        if !rows.is_empty() {
            text.line("");
            text.table(["Type", "Shape", "Size", "Place", "Tensor"], &rows);
        }
        text.print()
    }
}

fn report<'a>(checkpoint: &Checkpoint, tensor: &'a TensorEntry) -> TensorReport<'a> {
    let mut places: Vec<DevicePlace> = Vec::new();
    for place in checkpoint.places(tensor, 0, tensor.length) {
        // Chunks of one member continue each other there.
        match places.last_mut() {
            Some(last) if last.path == place.path && last.offset + last.length == place.offset => {
                last.length += place.length;
            }
            _ => places.push(place),
        }
    }
    TensorReport {
        name: &tensor.name,
        dtype: tensor.dtype,
        shape: &tensor.shape,
        bytes: tensor.length,
        runs: &tensor.runs,
        places,
    }
}

fn row(checkpoint: &Checkpoint, tensor: &TensorEntry) -> [String; 5] {
    let shape: Vec<String> = tensor.shape.iter().map(ToString::to_string).collect();
    let first = checkpoint.places(tensor, 0, tensor.length.min(1));
    let place = first.first().map_or_else(
        || "-".to_owned(),
        |place| {
            format!(
                "{} at {}",
                plain(&place.path.to_string_lossy()),
                place.offset
            )
        },
    );
    [
        tensor.dtype.to_string(),
        format!("[{}]", shape.join(", ")),
        Short(tensor.length).to_string(),
        place,
        plain(&tensor.name),
    ]
}
