//! What fio says of a turn: the part of its JSON that is compared.

use std::time::Duration;

use serde::Deserialize;

use crate::error::{Error, ErrorKind, Result};

/// What one side did in its window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Done {
    pub(crate) window: Duration,
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    /// CPU time, user and system, for each I/O.
    pub(crate) cpu_ns_per_io: f64,
}

impl Done {
    pub(crate) fn iops(&self) -> f64 {
        self.ios as f64 / self.window.as_secs_f64()
    }
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    error: i32,
    read: Direction,
    write: Direction,
    /// Milliseconds that the CPU time is a part of.
    job_runtime: f64,
    usr_cpu: f64,
    sys_cpu: f64,
}

#[derive(Deserialize)]
struct Direction {
    io_bytes: u64,
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
}

/// Reads what fio wrote to its standard output: notes may stand before the JSON.
///
/// # Errors
///
/// It is not understood, the job failed, or it did nothing.
pub(crate) fn parse(text: &str) -> Result<Done> {
    let json = match text.find("\n{") {
        _ if text.starts_with('{') => text,
        Some(before) => &text[before..],
        None => text,
    };
    let output: Output = serde_json::from_str(json)
        .map_err(|cause| Error::failed("fio's report is not understood", cause))?;
    let failed = |message: String| Error::new(ErrorKind::Failed, message);
    let [job] = &output.jobs[..] else {
        let count = output.jobs.len();
        return Err(failed(format!("fio reports {count} jobs, not one")));
    };
    if job.error != 0 {
        let cause = std::io::Error::from_raw_os_error(job.error);
        return Err(Error::failed("fio's job failed", cause));
    }
    let direction = if job.write.total_ios > 0 {
        &job.write
    } else {
        &job.read
    };
    if direction.total_ios == 0 || direction.runtime == 0 {
        return Err(failed(
            "fio completed nothing in the time given; use a longer --runtime".to_owned(),
        ));
    }
    let cpu_ns = (job.usr_cpu + job.sys_cpu) / 100.0 * job.job_runtime * 1e6;
    Ok(Done {
        window: Duration::from_millis(direction.runtime),
        ios: direction.total_ios,
        bytes: direction.io_bytes,
        cpu_ns_per_io: cpu_ns / direction.total_ios as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of fio 3.33, but for lists that nobody reads.
    const RECORDED: &str = r#"{
  "fio version" : "fio-3.33",
  "timestamp" : 1796075623,
  "jobs" : [
    {
      "jobname" : "a",
      "groupid" : 0,
      "error" : 0,
      "eta" : 2147483647,
      "elapsed" : 1,
      "job options" : {
        "rw" : "randread",
        "bs" : "4k"
      },
      "read" : {
        "io_bytes" : 1313853440,
        "io_kbytes" : 1283060,
        "bw_bytes" : 2617237928,
        "bw" : 2555896,
        "iops" : 638721.115538,
        "runtime" : 502,
        "total_ios" : 320638,
        "short_ios" : 0,
        "drop_ios" : 0
      },
      "write" : {
        "io_bytes" : 0,
        "runtime" : 0,
        "total_ios" : 0
      },
      "trim" : {
        "io_bytes" : 0,
        "runtime" : 0,
        "total_ios" : 0
      },
      "job_runtime" : 501,
      "usr_cpu" : 9.181637,
      "sys_cpu" : 32.534930,
      "ctx" : 254
    }
  ]
}
"#;

    #[test]
    fn a_report_gives_rate_and_cpu_time() {
        let done = parse(RECORDED).unwrap();
        assert_eq!((done.ios, done.bytes), (320_638, 1_313_853_440));
        assert!((done.iops() - 638_721.1).abs() < 1.0);
        // 41.7 % of 501 ms.
        assert!((done.cpu_ns_per_io - 651.8).abs() < 0.5, "{done:?}");
    }

    #[test]
    fn notes_before_the_report_do_no_harm() {
        let text = format!("note: both iodepth >= 1 and synchronous I/O engine\n{RECORDED}");
        assert_eq!(parse(&text).unwrap(), parse(RECORDED).unwrap());
    }

    #[test]
    fn failures_and_nonsense_are_errors() {
        let failed = RECORDED.replace("\"error\" : 0", "\"error\" : 12");
        let error = parse(&failed).unwrap_err();
        assert!(error.chain().contains("memory"), "{}", error.chain());
        let idle = RECORDED.replace("320638", "0");
        assert!(parse(&idle).unwrap_err().to_string().contains("--runtime"));
        for text in ["", "fio: it broke", "{}", "{\"jobs\": []}"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
