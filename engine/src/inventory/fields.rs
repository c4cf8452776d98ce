//! Fields of pages and files that drives fill: bytes at offsets, and text that is safe to print.
//!
//! - Total: whatever the bytes and the offset, there is a value and no panic. Outside of the page
//!   everything is zero.
//! - Text from a drive goes to terminals, so nothing in it but printable characters survives.

/// The `N` bytes at an offset.
pub(super) fn at<const N: usize>(page: &[u8], offset: usize) -> [u8; N] {
    page.get(offset..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

pub(super) fn u8_at(page: &[u8], offset: usize) -> u8 {
    u8::from_le_bytes(at(page, offset))
}

pub(super) fn u16_at(page: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(at(page, offset))
}

pub(super) fn u32_at(page: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(at(page, offset))
}

pub(super) fn u64_at(page: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(at(page, offset))
}

/// A counter of 128 bits in 64: what is larger is told as the largest.
pub(super) fn counter_at(page: &[u8], offset: usize) -> u64 {
    u64::try_from(u128::from_le_bytes(at(page, offset))).unwrap_or(u64::MAX)
}

/// Text padded with spaces or ended by a zero; none when nothing is left of it.
pub(super) fn text_at<const N: usize>(page: &[u8], offset: usize) -> Option<String> {
    printable(&at::<N>(page, offset))
}

/// Degrees Celsius of a temperature in kelvins; 0 K stands for "not reported".
pub(super) fn celsius(kelvin: u16) -> Option<i32> {
    (kelvin != 0).then(|| i32::from(kelvin) - 273)
}

/// What can be printed of bytes that should be text, without blanks around it.
pub(super) fn printable(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_of_the_page_is_zero() {
        assert_eq!(u32_at(&[1, 2, 3], 0), 0);
        assert_eq!(u16_at(&[1, 2, 3], 1), 0x0302);
        assert_eq!(u64_at(&[], usize::MAX), 0);
    }

    #[test]
    fn counters_stay_at_their_end() {
        let mut page = [0; 16];
        page[0] = 7;
        assert_eq!(counter_at(&page, 0), 7);
        page[8] = 1;
        assert_eq!(counter_at(&page, 0), u64::MAX);
    }

    #[test]
    fn text_is_trimmed_and_cannot_drive_a_terminal() {
        assert_eq!(printable(b"  S1234   ").as_deref(), Some("S1234"));
        assert_eq!(printable(b"a\x1b[2Jb\0junk").as_deref(), Some("a [2Jb"));
        assert_eq!(printable(b" \n\0x"), None);
    }

    #[test]
    fn absolute_zero_is_no_temperature() {
        assert_eq!(celsius(0), None);
        assert_eq!(celsius(310), Some(37));
        assert_eq!(celsius(263), Some(-10));
    }
}
