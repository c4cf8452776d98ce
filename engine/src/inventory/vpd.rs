//! Vital product data of SCSI disks, and of SATA disks that Linux shows as such: pages in, values
//! out. Any bytes are taken.
//!
//! The pages are those of the SCSI Primary Commands (80h, unit serial number) and the SCSI Block
//! Commands (B1h, block device characteristics); numbers in them are big-endian. sysfs has them as
//! `vpd_pg80` and `vpd_pgb1`, read when the disk was found, so that nothing is asked of the disk.

use super::fields::{printable, u8_at};

/// The serial number of page 80h.
pub(super) fn serial(page: &[u8]) -> Option<String> {
    (u8_at(page, 1) == 0x80).then_some(())?;
    let length = usize::from(u8_at(page, 2)) << 8 | usize::from(u8_at(page, 3));
    let text = page.get(4..)?;
    printable(text.get(..length).unwrap_or(text))
}

/// The nominal form factor of page B1h.
pub(super) fn form_factor(page: &[u8]) -> Option<&'static str> {
    (u8_at(page, 1) == 0xb1).then_some(())?;
    match u8_at(page, 7) & 0xf {
        1 => Some("5.25 inch"),
        2 => Some("3.5 inch"),
        3 => Some("2.5 inch"),
        4 => Some("1.8 inch"),
        5 => Some("less than 1.8 inch"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serial_number_ends_where_its_length_says() {
        assert_eq!(
            serial(b"\0\x80\0\x08 ZA1234xrest").as_deref(),
            Some("ZA1234x")
        );
        // A length beyond the page, another page, and none at all.
        assert_eq!(serial(b"\0\x80\xff\xffAB").as_deref(), Some("AB"));
        assert_eq!(serial(b"\0\x83\0\x02AB"), None);
        assert_eq!(serial(b""), None);
    }

    #[test]
    fn form_factors_are_named() {
        assert_eq!(
            form_factor(&[0, 0xb1, 0, 60, 0, 1, 0, 0x03]),
            Some("2.5 inch")
        );
        assert_eq!(form_factor(&[0, 0xb1, 0, 60, 0, 1, 0, 0]), None);
        assert_eq!(form_factor(&[0, 0xb1]), None);
    }
}
