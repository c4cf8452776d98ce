//! The requests of one thread, drawn from a profile: what each does, where, and how long it is.
//!
//! All arithmetic, no I/O. Every request lies wholly in the thread's region.

use swath_engine::OpKind;

use super::profile::{Profile, Region, Skew};
use crate::random::Random;
use crate::report::whole;

/// What one request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) kind: OpKind,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// Gives a thread its requests, one after the other, for ever.
#[derive(Debug)]
pub(super) struct Requests {
    region: Region,
    read_share: f64,
    seek_share: f64,
    /// Sizes, each with the sum of the shares up to it.
    sizes: Vec<(u64, f64)>,
    skew: Option<Skew>,
    random: Random,
    /// Where the request before ended.
    head: u64,
}

impl Requests {
    /// The requests of thread number `thread` on a volume of `volume_bytes`.
    pub(super) fn new(profile: &Profile, volume_bytes: u64, thread: u32, seed: u64) -> Self {
        let region = profile.region(volume_bytes, thread);
        let mut sum = 0.0;
        let sizes = profile.sizes.iter().map(|size| {
            sum += size.percent / 100.0;
            (size.bytes, sum)
        });
        Self {
            region,
            read_share: profile.read_percent / 100.0,
            seek_share: profile.seek_percent / 100.0,
            sizes: sizes.collect(),
            skew: profile.skew,
            random: Random::new(seed, u64::from(thread) + 1),
            head: region.base,
        }
    }

    /// The next request.
    #[inline]
    pub(super) fn next_ask(&mut self) -> Ask {
        let kind = if self.random.unit() < self.read_share {
            OpKind::Read
        } else {
            OpKind::Write
        };
        let bytes = self.draw_size();
        let end = self.region.base + self.region.bytes;
        let offset = if self.random.unit() < self.seek_share {
            self.draw_offset(bytes)
        } else if self.head + bytes > end {
            self.region.base
        } else {
            self.head
        };
        self.head = offset + bytes;
        Ask {
            kind,
            offset,
            bytes,
        }
    }

    #[inline]
    fn draw_size(&mut self) -> u64 {
        if let [(bytes, _)] = self.sizes[..] {
            return bytes;
        }
        let draw = self.random.unit();
        let drawn = self.sizes.iter().find(|(_, sum)| draw < *sum);
        // The shares may add up to a little less than 1.
        drawn.or(self.sizes.last()).map_or(0, |(bytes, _)| *bytes)
    }

    /// A random place, a multiple of the request's own size from the region's first byte.
    #[inline]
    fn draw_offset(&mut self, bytes: u64) -> u64 {
        let places = self.region.bytes / bytes;
        let place = match self.skew {
            None => self.random.below(places),
            Some(skew) => {
                let hot = whole(places as f64 * skew.space_percent / 100.0).clamp(1, places);
                let is_hot = self.random.unit() * 100.0 < skew.requests_percent;
                if is_hot || hot == places {
                    self.random.below(hot)
                } else {
                    hot + self.random.below(places - hot)
                }
            }
        };
        self.region.base + place * bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::shipped::find;
    use super::*;

    const VOLUME_BYTES: u64 = 64 << 20;

    fn asks(profile: &Profile, thread: u32, count: usize) -> Vec<Ask> {
        let mut requests = Requests::new(profile, VOLUME_BYTES, thread, 1);
        (0..count).map(|_| requests.next_ask()).collect()
    }

    fn share(asks: &[Ask], is: impl Fn(&Ask) -> bool) -> f64 {
        asks.iter().filter(|ask| is(ask)).count() as f64 / asks.len() as f64
    }

    #[test]
    fn a_mix_has_the_shares_it_was_given() {
        let profile = find("oracle").unwrap();
        let asks = asks(&profile, 0, 50_000);
        let near = |share: f64, expected: f64| (share - expected).abs() < 0.01;
        assert!(near(share(&asks, |ask| ask.kind == OpKind::Read), 0.65));
        for (bytes, expected) in [(8 << 10, 0.85), (64 << 10, 0.10), (128 << 10, 0.05)] {
            assert!(
                near(share(&asks, |ask| ask.bytes == bytes), expected),
                "{bytes}"
            );
        }
        let follows = asks
            .windows(2)
            .filter(|pair| pair[1].offset == pair[0].offset + pair[0].bytes)
            .count() as f64;
        assert!(near(follows / asks.len() as f64, 0.2));
    }

    #[test]
    fn a_hot_share_gets_what_it_was_given() {
        let mut profile = find("4k-randread").unwrap();
        profile.skew = Some(Skew {
            requests_percent: 80.0,
            space_percent: 20.0,
        });
        let asks = asks(&profile, 0, 50_000);
        let hot = share(&asks, |ask| ask.offset < VOLUME_BYTES / 5);
        assert!((hot - 0.8).abs() < 0.01, "{hot}");
        // The rest is not left out.
        assert!(asks.iter().any(|ask| ask.offset > VOLUME_BYTES / 2));
    }

    #[test]
    fn every_request_lies_in_its_threads_region() {
        for name in ["oracle", "vdi-boot", "64k-write"] {
            let mut profile = find(name).unwrap();
            profile.threads = 5;
            for thread in 0..5 {
                let region = profile.region(VOLUME_BYTES, thread);
                for ask in asks(&profile, thread, 5000) {
                    assert!(ask.offset >= region.base, "{ask:?}");
                    assert!(
                        ask.offset + ask.bytes <= region.base + region.bytes,
                        "{ask:?}"
                    );
                    assert!(ask.offset.is_multiple_of(4096), "{ask:?}");
                }
            }
        }
    }

    #[test]
    fn without_seeks_a_region_is_walked_and_walked_again() {
        let profile = find("64k-read").unwrap();
        let offsets: Vec<u64> = asks(&profile, 0, 1025)
            .iter()
            .map(|ask| ask.offset)
            .collect();
        assert_eq!(offsets[..3], [0, 64 << 10, 128 << 10]);
        assert_eq!(offsets[1024], 0);
    }
}
