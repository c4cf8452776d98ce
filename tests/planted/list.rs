//! The bugs: each a promise of the product, and the change to the source that breaks it.
//!
//! The text to be found must be in its file exactly once. When the code moves on, the bug moves with
//! it: one that no longer has a place is told as void, and is to be planted anew.

/// A change to one file.
pub(crate) struct Edit {
    pub(crate) file: &'static str,
    pub(crate) find: &'static str,
    pub(crate) replace: &'static str,
}

/// A bug.
pub(crate) struct Bug {
    pub(crate) name: &'static str,
    /// The promise that it breaks.
    pub(crate) breaks: &'static str,
    pub(crate) edits: &'static [Edit],
    /// What `cargo test` is given, in turn, until one of them notices. After them comes all there
    /// is.
    pub(crate) caught_by: &'static [&'static str],
}

/// All of them.
pub(crate) const BUGS: &[Bug] = &[
    Bug {
        name: "data-flush-skipped",
        breaks: "data is durable before the root record leads to it",
        edits: &[Edit {
            file: "volume/src/volume/root.rs",
            find: "metadata::flush(&mut lane).map_err(|cause| {",
            replace: "Ok::<(), Error>(()).map_err(|cause| {",
        }],
        caught_by: &[
            "-p swath-tests --test crash",
            "-p swath-tests --test integration volume::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "record-flush-skipped",
        breaks: "record A is durable everywhere before a commit is told, and before B is written",
        edits: &[Edit {
            file: "volume/src/volume/root.rs",
            find: "        metadata::flush(lane)?;
    }
    Ok(())",
            replace: "    }
    Ok(())",
        }],
        caught_by: &[
            "-p swath-tests --test crash",
            "-p swath-tests --test integration volume::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "b-before-a",
        breaks: "record B is written after record A is durable",
        edits: &[Edit {
            file: "volume/src/root/mod.rs",
            find: "pub(crate) const ALL: [Self; 2] = [Self::Head, Self::Tail];",
            replace: "pub(crate) const ALL: [Self; 2] = [Self::Tail, Self::Head];",
        }],
        caught_by: &[
            "-p swath-tests --test crash",
            "-p swath-tests --test integration volume::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "one-member-not-flushed",
        breaks: "a flush of the volume is a flush of every member",
        edits: &[Edit {
            file: "volume/src/metadata.rs",
            find: "let segments: Vec<_> = (0..count).map(Segment::flush).collect();",
            replace: "let segments: Vec<_> = (0..count.max(2) - 1).map(Segment::flush).collect();",
        }],
        caught_by: &[
            "-p swath-tests --test crash",
            "-p swath-tests --test integration volume::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "flush-error-ignored",
        breaks: "a failed flush of any member fails the commit",
        edits: &[Edit {
            file: "volume/src/metadata.rs",
            find: "    completion.result?;
    Ok(())",
            replace: "    drop(completion.result);
    Ok(())",
        }],
        caught_by: &[
            "-p swath-tests --test integration volume::",
            "-p swath-tests --test integration store::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "epoch-not-raised",
        breaks: "opening for writing puts a record of its own after the one it finds",
        edits: &[Edit {
            file: "volume/src/root/recover.rs",
            find: "let renewed = newest.renewed()?;",
            replace: "let renewed = newest.clone();",
        }],
        caught_by: &[
            "-p swath-volume --lib root",
            "-p swath-tests --test crash",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "not-rolled-forward",
        breaks: "a record that one member has is brought to all before it is replaced",
        edits: &[Edit {
            file: "volume/src/root/recover.rs",
            find: ".filter(|(_, members)| !members.is_empty())",
            replace: ".filter(|(_, members)| members.len() > 999)",
        }],
        caught_by: &[
            "-p swath-volume --lib root",
            "-p swath-tests --test crash",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "oldest-record-chosen",
        breaks: "the newest good record of any member is in force",
        edits: &[Edit {
            file: "volume/src/root/recover.rs",
            find: "Ok(found.last().map(|(record, _)| *record))",
            replace: "Ok(found.first().map(|(record, _)| *record))",
        }],
        caught_by: &["-p swath-volume --lib root", "-p swath-tests --test crash"],
    },
    Bug {
        name: "fork-accepted",
        breaks: "two records of one age and different content are refused",
        edits: &[Edit {
            file: "volume/src/root/recover.rs",
            find: "        if !may_follow(older, newer) {",
            replace: "        if !may_follow(older, newer) && older.age() != newer.age() {",
        }],
        caught_by: &["-p swath-volume --lib root", "-p swath-tests --test crash"],
    },
    Bug {
        name: "stale-member-accepted",
        breaks: "a member that missed a commit is refused",
        edits: &[Edit {
            file: "volume/src/root/recover.rs",
            find: "        if is_behind {",
            replace: "        if is_behind && last == 0 {",
        }],
        caught_by: &[
            "-p swath-volume --lib root",
            "-p swath-tests --test integration refusals::",
        ],
    },
    Bug {
        name: "record-checksum-skipped",
        breaks: "a torn root record is no record",
        edits: &[Edit {
            file: "volume/src/root/codec.rs",
            find: "    if !intact {
        return Err(RecordFault::Checksum);
    }
",
            replace: "",
        }],
        caught_by: &["-p swath-volume --lib root", "-p swath-tests --test crash"],
    },
    Bug {
        name: "record-address-unchecked",
        breaks: "a root record that was written elsewhere is no record",
        edits: &[Edit {
            file: "volume/src/root/codec.rs",
            find: r#"    if u64_at(block, at::OWN_OFFSET) != place.slot_offset(slot) {
        return misplaced("own offset");
    }
"#,
            replace: "",
        }],
        caught_by: &[
            "-p swath-volume --lib root",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "catalog-checksum-skipped",
        breaks: "what the root record leads to is what was written last",
        edits: &[Edit {
            file: "checkpoint/src/place.rs",
            find: "if blob.len() as u64 == self.length && codec::stated_checksum(blob) == Some(self.checksum) {",
            replace: "if blob.len() as u64 == self.length {",
        }],
        caught_by: &[
            "-p swath-checkpoint --lib",
            "-p swath-tests --test integration store::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "block-checksum-skipped",
        breaks: "a flipped bit of a tensor is never given out",
        edits: &[Edit {
            file: "checkpoint/src/checkpoint.rs",
            find: "        if tensor.checksums[usize_of(block)] == found {",
            replace: "        if tensor.checksums[usize_of(block)] == found || block > 0 {",
        }],
        caught_by: &[
            "-p swath-tests --test integration store::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "extents-reused-early",
        breaks: "space that a commit frees is not used before the next commit is durable",
        edits: &[
            Edit {
                file: "checkpoint/src/store/commit.rs",
                find: "        state.settle(commit);
",
                replace: "",
            },
            Edit {
                file: "checkpoint/src/store/commit.rs",
                find: "            freed_by: commit,
        }));
",
                replace: "            freed_by: commit,
        }));
        state.settle(commit + 1);
",
            },
        ],
        caught_by: &[
            "-p swath-tests --test crash",
            "-p swath-tests --test property",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "read-space-reused",
        breaks: "space that somebody reads is not used",
        edits: &[Edit {
            file: "checkpoint/src/store/state.rs",
            find: "            if held.freed_by >= commit || is_read {",
            replace: "            if held.freed_by >= commit {",
        }],
        caught_by: &[
            "-p swath-tests --test integration store::",
            "-p swath-tests --test property",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "commit-before-data",
        breaks: "a commit waits for every write of every writer",
        edits: &[Edit {
            file: "checkpoint/src/writer.rs",
            find: "        let drained = self.reap(self.lane.in_flight());",
            replace: "        let drained = self.reap(0);",
        }],
        caught_by: &[
            "-p swath-tests --test integration store::",
            "-p swath-tests --test simulation",
            "-p swath-tests --test property",
        ],
    },
    Bug {
        name: "writer-error-lost",
        breaks: "every writer's error reaches the commit",
        edits: &[Edit {
            file: "checkpoint/src/ledger.rs",
            find: "        self.state.lock().error.get_or_insert_with(|| error.clone());",
            replace: "        let _ = (&self.state, error);",
        }],
        caught_by: &[
            "-p swath-tests --test integration store::",
            "-p swath-tests --test simulation",
            "-p swath-checkpoint",
        ],
    },
    Bug {
        name: "tail-not-padded",
        breaks: "what lies behind a tensor's last byte in its block is zeroes",
        edits: &[Edit {
            file: "checkpoint/src/writer.rs",
            find: "        buffer[length..].fill(0);
",
            replace: "",
        }],
        caught_by: &[
            "-p swath-checkpoint",
            "-p swath-tests --test property",
            "-p swath-tests --test integration store::",
        ],
    },
    Bug {
        name: "duplicate-tensor-accepted",
        breaks: "a tensor's name is taken once in a checkpoint",
        edits: &[Edit {
            file: "checkpoint/src/ledger.rs",
            find: "        } else if state.tensors.contains_key(name) {",
            replace: "        } else if state.tensors.contains_key(name) && name.is_empty() {",
        }],
        caught_by: &[
            "-p swath-tests --test integration store::",
            "-p swath-checkpoint",
        ],
    },
    Bug {
        name: "last-good-removed",
        breaks: "retention never removes the last good checkpoint",
        edits: &[Edit {
            file: "checkpoint/src/retention.rs",
            find: "            if !candidate.damaged {
                good_newer += 1;
            }",
            replace: "            good_newer += 1;",
        }],
        caught_by: &["-p swath-checkpoint --lib retention"],
    },
    Bug {
        name: "receipt-unchecked",
        breaks: "a receipt names space of its own lease only",
        edits: &[Edit {
            file: "checkpoint/src/lent.rs",
            find: "        let unused = unused(&self.part(lease_id)?.extents, tensors)?;",
            replace: "        let unused = unused(&self.part(lease_id)?.extents, tensors).unwrap_or_default();",
        }],
        caught_by: &[
            "-p swath-checkpoint",
            "-p swath-tests --test integration leases::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "short-write-taken-as-full",
        breaks: "a short transfer is continued to its end",
        edits: &[Edit {
            file: "engine/src/lane/piece.rs",
            find: "        if !self.kind.has_memory() || bytes == self.remaining() {",
            replace: "        if !self.kind.has_memory() || bytes == self.remaining() || bytes > 0 {",
        }],
        caught_by: &[
            "-p swath-tests --test integration lane_faults::",
            "-p swath-tests --test property",
        ],
    },
    Bug {
        name: "continued-at-wrong-memory",
        breaks: "a short transfer goes on where it stopped, in memory too",
        edits: &[Edit {
            file: "engine/src/lane/begin.rs",
            find: "let pointer = buffer.pointer().wrapping_add(done);",
            replace: "let pointer = buffer.pointer().wrapping_add(done * 0);",
        }],
        caught_by: &[
            "-p swath-tests --test integration lane_faults::",
            "-p swath-tests --test property",
        ],
    },
    Bug {
        name: "slot-left-as-it-was",
        breaks: "a request inherits nothing from the one before it",
        edits: &[Edit {
            file: "engine/src/lane/end.rs",
            find: "        piece.is_plain = false;
        let device",
            replace: "        let device",
        }],
        caught_by: &["-p swath-tests --test integration lane_faults::"],
    },
    Bug {
        name: "poison-not-set",
        breaks: "after a failed write nothing is written any more",
        edits: &[Edit {
            file: "engine/src/lane/end.rs",
            find: "                    poison.set(&error);",
            replace: "                    let _ = poison;",
        }],
        caught_by: &[
            "-p swath-tests --test integration volume::",
            "-p swath-tests --test integration store::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "poison-not-looked-at",
        breaks: "a poisoned volume refuses writes",
        edits: &[Edit {
            file: "engine/src/lane/check.rs",
            find: "            OpKind::Write => !self.is_poisoned(),",
            replace: "            OpKind::Write => true,",
        }],
        caught_by: &[
            "-p swath-tests --test integration volume::",
            "-p swath-tests --test integration lane_faults::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "alignment-unchecked",
        breaks: "a request that is not aligned is refused before it starts",
        edits: &[Edit {
            file: "engine/src/lane/check.rs",
            find: "        (offset | length) & self.offset_mask == 0
            && offset",
            replace: "        offset",
        }],
        caught_by: &[
            "-p swath-tests --test integration queue_suite::",
            "-p swath-tests --test integration volume::",
            "-p swath-engine",
        ],
    },
    Bug {
        name: "end-unchecked",
        breaks: "a request beyond the end is refused before it starts",
        edits: &[Edit {
            file: "engine/src/lane/check.rs",
            find: "                .is_some_and(|end| end <= self.capacity_bytes)",
            replace: "                .is_some_and(|end| end <= self.capacity_bytes.saturating_add(1 << 20))",
        }],
        caught_by: &[
            "-p swath-tests --test integration queue_suite::",
            "-p swath-tests --test integration lane_faults::",
            "-p swath-engine",
        ],
    },
    Bug {
        name: "discard-by-another-map",
        breaks: "a discard goes to the places that a write goes to",
        edits: &[Edit {
            file: "volume/src/volume/shared.rs",
            find: "                .extents(offset, length, self.data_offset, segments);",
            replace: "                .extents(offset, length, self.data_offset + u64::from(kind == OpKind::Discard) * self.layout.chunk_bytes(), segments);",
        }],
        caught_by: &[
            "-p swath-tests --test property",
            "-p swath-tests --test integration volume::",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "write-locks-skipped",
        breaks: "two writers of parts of one block lose nothing",
        edits: &[Edit {
            file: "volume/src/volume/write_locks.rs",
            find: ".any(|(_, other)| claims.iter().any(|mine| mine.collides(other)))",
            replace: ".any(|(_, other)| claims.iter().any(|mine| mine.collides(other) && mine.range.end == 0))",
        }],
        caught_by: &[
            "-p swath-volume",
            "-p swath-tests --test integration sharing::",
            "-p swath-tests --test integration volume::",
        ],
    },
    Bug {
        name: "superblock-flush-skipped",
        breaks: "every member has a good superblock at any moment of an update",
        edits: &[Edit {
            file: "volume/src/metadata.rs",
            find: "            lane.write_blocking(&buffer, false, &place)?;
        }
        flush(lane)?;",
            replace: "            lane.write_blocking(&buffer, false, &place)?;
        }",
        }],
        caught_by: &[
            "-p swath-tests --test integration updates::",
            "-p swath-tests --test crash",
            "-p swath-tests --test simulation",
        ],
    },
    Bug {
        name: "foreign-member-accepted",
        breaks: "a member of another volume is refused",
        edits: &[Edit {
            file: "volume/src/superblock/copies.rs",
            find: "        if member.any.volume_uuid != meant.any.volume_uuid {",
            replace: "        if member.any.volume_uuid != meant.any.volume_uuid && members.is_empty() {",
        }],
        caught_by: &[
            "-p swath-volume",
            "-p swath-tests --test integration refusals::",
        ],
    },
    Bug {
        name: "duplicate-member-accepted",
        breaks: "two devices that are one member are refused, both named",
        edits: &[Edit {
            file: "volume/src/superblock/copies.rs",
            find: ".find(|twin| twin.any.member_uuid == member.any.member_uuid)",
            replace: ".find(|twin| twin.any.member_uuid == member.any.member_uuid && twin.path() == member.path())",
        }],
        caught_by: &[
            "-p swath-volume",
            "-p swath-tests --test integration refusals::",
        ],
    },
];
