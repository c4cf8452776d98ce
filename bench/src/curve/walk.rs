//! The way along the curves: each profile's peak, then the loads, in shares of it; what was measured
//! is kept when it stops early.

use std::time::Duration;

use swath_engine::QueueDescription;

use super::parse::{is_rate, no_rate};
use super::point::{Measured, PointOptions, measure, point_time};
use super::profile::Profile;
use super::report::{PointReport, ProfileReport, WorkloadReport};
use crate::environment::memory_available_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::progress::Progress;
use crate::report::format_rate;
use crate::size::{format_bytes, format_duration};
use crate::subject::Subject;

/// What is measured.
#[derive(Debug, Clone)]
pub struct Course {
    /// The profiles, in order.
    pub profiles: Vec<Profile>,
    /// The loads of each, in per cent of the full rate.
    pub percents: Vec<f64>,
    /// What counts as 100 %, if not each profile's own rate or its peak.
    pub rate: Option<f64>,
}

/// What a course gave.
#[derive(Debug)]
pub struct Outcome {
    /// One entry for each profile that was begun.
    pub workloads: Vec<WorkloadReport>,
    /// The queues of the lanes that ran, each kind once.
    pub queues: Vec<QueueDescription>,
    /// Why there are not more points.
    pub stopped: Option<Error>,
}

impl Outcome {
    /// Whether the user stopped it.
    pub fn is_interrupted(&self) -> bool {
        let stopped = self.stopped.as_ref();
        stopped.is_some_and(|error| error.kind() == ErrorKind::Interrupted)
    }
}

/// Parses the loads of a curve: `10,50,100`, or with equal steps, `10..120/10`.
///
/// # Errors
///
/// Not such a list; a load that is not above 0 and up to 1000 %.
pub fn parse_percents(text: &str) -> Result<Vec<f64>> {
    let wrong = || {
        Error::usage(format!(
            "'{text}' are no loads in per cent; write 10,50,100 or 10..120/10"
        ))
    };
    let number = |text: &str| {
        let text = text.trim().trim_end_matches('%');
        let number = text.parse::<f64>().ok();
        let number = number.filter(|percent| *percent > 0.0 && *percent <= 1000.0);
        number.ok_or_else(wrong)
    };
    let Some((first, rest)) = text.split_once("..") else {
        return text.split(',').map(number).collect();
    };
    let (last, step) = rest.split_once('/').ok_or_else(wrong)?;
    let (first, last, step) = (number(first)?, number(last)?, number(step)?);
    // A little more than the last, for steps that no binary fraction is.
    let percents: Vec<f64> = (0..=1000)
        .map(|place| first + f64::from(place) * step)
        .take_while(|percent| *percent <= last + step * 1e-6)
        .collect();
    if percents.is_empty() {
        return Err(wrong());
    }
    Ok(percents)
}

/// Parses a rate of requests.
///
/// # Errors
///
/// No number, or a rate at which nothing arrives.
pub fn check_rate(text: &str) -> Result<f64> {
    let rate = text
        .parse()
        .map_err(|_| Error::usage(format!("'{text}' is not a rate; give requests a second")))?;
    if is_rate(rate) {
        Ok(rate)
    } else {
        Err(Error::usage(no_rate(rate)))
    }
}

impl Course {
    /// Sees that every profile can run on a volume of `volume_bytes` whose blocks are `block_bytes`.
    ///
    /// # Errors
    ///
    /// The first that cannot, with the place in its file; or too little memory.
    pub fn check(&self, block_bytes: u64, volume_bytes: u64) -> Result<()> {
        let have = memory_available_bytes().unwrap_or(u64::MAX);
        for profile in &self.profiles {
            profile.check(block_bytes, volume_bytes)?;
            if profile.buffer_bytes() > have / 2 {
                return Err(Error::new(
                    ErrorKind::NoSpace,
                    format!(
                        "{}: requests in flight need {} of memory, and {} are free; make fewer \
                         outstanding, or smaller",
                        profile.name,
                        format_bytes(profile.buffer_bytes()),
                        format_bytes(have)
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Whether any profile writes.
    pub fn writes(&self) -> bool {
        self.profiles.iter().any(Profile::writes)
    }

    /// The most threads of any of them.
    pub fn threads_max(&self) -> u32 {
        let threads = self.profiles.iter().map(|profile| profile.threads);
        threads.max().unwrap_or(1)
    }

    /// How many points are measured, peaks included.
    pub fn points(&self) -> usize {
        let of_profile =
            |profile| self.percents.len() + usize::from(self.given_rate(profile).is_none());
        self.profiles.iter().map(of_profile).sum()
    }

    /// How long all of it takes, but for making members and for what is behind at the end of points
    /// beyond saturation.
    pub fn total(&self, options: &PointOptions) -> Duration {
        let points = u32::try_from(self.points()).unwrap_or(u32::MAX);
        point_time(options).saturating_mul(points)
    }

    fn given_rate(&self, profile: &Profile) -> Option<f64> {
        self.rate.or(profile.rate)
    }
}

/// Goes all the way; `print` is for lines of intervals.
pub fn walk(
    course: &Course,
    subject: &Subject,
    options: &PointOptions,
    progress: &mut Progress,
    print: &mut dyn FnMut(&str),
) -> Outcome {
    let mut outcome = Outcome {
        workloads: Vec::new(),
        queues: Vec::new(),
        stopped: None,
    };
    let mut walker = Walker {
        course,
        subject,
        options,
        progress,
        print,
        done: 0,
        queues: Vec::new(),
    };
    for profile in &course.profiles {
        let mut workload = WorkloadReport {
            profile: ProfileReport::of(profile),
            // Asked before it runs: writing changes the answer.
            state: subject.data_state(),
            full_iops: 0.0,
            peak: None,
            points: Vec::new(),
        };
        let walked = walker.profile(profile, &mut workload);
        if workload.peak.is_some() || !workload.points.is_empty() {
            outcome.workloads.push(workload);
        }
        if let Err(error) = walked {
            outcome.stopped = Some(error);
            break;
        }
    }
    walker.progress.finish();
    outcome.queues = walker.queues;
    outcome
}

struct Walker<'run> {
    course: &'run Course,
    subject: &'run Subject,
    options: &'run PointOptions,
    progress: &'run mut Progress,
    print: &'run mut dyn FnMut(&str),
    /// Points that were measured.
    done: usize,
    queues: Vec<QueueDescription>,
}

impl Walker<'_> {
    fn profile(&mut self, profile: &Profile, workload: &mut WorkloadReport) -> Result<()> {
        let full = match self.course.given_rate(profile) {
            Some(rate) => rate,
            None => {
                let measured = self.point(profile, None)?;
                let peak = self.report(profile, None, &measured)?;
                self.tell(profile, &peak);
                // Not rounded: the loads are shares of it.
                let full = measured.done as f64 / self.options.runtime.as_secs_f64();
                workload.peak = Some(peak);
                full
            }
        };
        workload.full_iops = (full * 10.0).round() / 10.0;
        for &percent in &self.course.percents {
            let rate = full * percent / 100.0;
            let measured = self.point(profile, Some((percent, rate)))?;
            let point = self.report(profile, Some((percent, rate)), &measured)?;
            self.tell(profile, &point);
            workload.points.push(point);
        }
        Ok(())
    }

    fn report(
        &self,
        profile: &Profile,
        load: Option<(f64, f64)>,
        measured: &Measured,
    ) -> Result<PointReport> {
        PointReport::of(load, measured, self.options.runtime, profile.outstanding)
    }

    fn point(&mut self, profile: &Profile, load: Option<(f64, f64)>) -> Result<Measured> {
        let what = load.map_or_else(
            || format!("{} uncapped", profile.name),
            |(percent, _)| format!("{} at {percent}%", profile.name),
        );
        let (total, one) = (self.course.total(self.options), point_time(self.options));
        let before = one.saturating_mul(u32::try_from(self.done).unwrap_or(u32::MAX));
        let left = total.saturating_sub(before);
        self.progress.measuring(&what, total, left);
        let Self {
            progress, print, ..
        } = self;
        if self.options.interval.is_some() {
            let rate = load.map_or_else(|| "uncapped".to_owned(), |(_, rate)| format!("{rate:.0}"));
            print(&format!("\n{what}; i/o rate: {rate}\n"));
        }
        let measured = measure(
            self.subject.volume(),
            profile,
            load.map(|(_, rate)| rate),
            self.options,
            &mut |elapsed| progress.measuring(&what, total, left.saturating_sub(elapsed)),
            &mut **print,
        )?;
        self.done += 1;
        if !self.queues.contains(&measured.queue) {
            self.queues.push(measured.queue.clone());
        }
        Ok(measured)
    }

    /// `[ 3/52] oltp at 20%: 12.3k of 12.3k IOPS, mean 81 us, p99 120 us, 1m 02s left`.
    fn tell(&mut self, profile: &Profile, point: &PointReport) {
        let total = self.course.points();
        let width = total.to_string().len();
        let rates = match point.percent {
            None => format!("uncapped: {} IOPS", format_rate(point.achieved_iops)),
            Some(percent) => format!(
                "at {percent}%: {} of {} IOPS",
                format_rate(point.achieved_iops),
                format_rate(point.offered_iops)
            ),
        };
        let one = point_time(self.options);
        let to_come = u32::try_from(total - self.done).unwrap_or(u32::MAX);
        let left = match one.saturating_mul(to_come) {
            Duration::ZERO => String::new(),
            left => format!(", {} left", format_duration(left)),
        };
        self.progress.line(&format!(
            "[{:>width$}/{total}] {} {rates}, mean {:.0} us, p99 {:.0} us{left}",
            self.done,
            profile.name,
            point.lat_ns.mean / 1e3,
            point.lat_ns.p99 as f64 / 1e3,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::shipped::{corners, find};
    use super::*;

    fn course() -> Course {
        Course {
            profiles: corners().iter().map(|name| find(name).unwrap()).collect(),
            percents: parse_percents("10..120/10").unwrap(),
            rate: None,
        }
    }

    #[test]
    fn loads_are_a_list_or_equal_steps() {
        assert_eq!(parse_percents("10,50%, 100").unwrap(), [10.0, 50.0, 100.0]);
        let steps = parse_percents("10..120/10").unwrap();
        assert_eq!((steps.len(), steps[0], steps[11]), (12, 10.0, 120.0));
        assert_eq!(parse_percents("0.1..0.3/0.1").unwrap().len(), 3);
        for text in [
            "", "0", "-10", "10..20", "20..10/5", "10..20/0", "ten", "2000", "nan",
        ] {
            assert_eq!(parse_percents(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn a_rate_at_which_nothing_arrives_is_refused() {
        assert_eq!(check_rate("2500").unwrap(), 2500.0);
        for text in ["0", "-1", "inf", "nan", "fast", ""] {
            assert_eq!(check_rate(text).unwrap_err().exit_code(), 2, "{text}");
        }
    }

    #[test]
    fn peaks_count_as_points_unless_a_rate_is_given() {
        let mut course = course();
        assert_eq!(course.points(), 4 * 13);
        course.profiles[0].rate = Some(100.0);
        assert_eq!(course.points(), 4 * 13 - 1);
        course.rate = Some(100.0);
        assert_eq!(course.points(), 4 * 12);
        assert!(course.writes());
    }

    #[test]
    fn profiles_that_do_not_fit_are_found_beforehand() {
        let mut course = course();
        course.check(512, 64 << 20).unwrap();
        assert_eq!(course.check(512, 32 << 10).unwrap_err().exit_code(), 2);
        course.profiles[0].outstanding = u32::MAX;
        course.profiles[0].sizes[0].bytes = 1 << 30;
        let error = course.check(512, u64::MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
}
