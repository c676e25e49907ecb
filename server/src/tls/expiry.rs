//! Until when a certificate holds.
//!
//! Handshakes do not need it, so no library here reads it; operators do. Of the certificate (RFC 5280, DER) this walks only
//! to `validity`, and takes every element before it by its tag and length:
//!
//! ```text
//! Certificate     ::= SEQUENCE { tbsCertificate SEQUENCE { [0] version OPTIONAL, serialNumber INTEGER,
//!                     signature SEQUENCE, issuer SEQUENCE, validity SEQUENCE { notBefore, notAfter }, … } … }
//! ```
//!
//! Times are `YYMMDDHHMMSSZ` (tag 0x17; years 1950 to 2049) or `YYYYMMDDHHMMSSZ` (tag 0x18).

use std::time::{Duration, SystemTime};

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

const DAY_SECONDS: u64 = 24 * 3_600;

/// When the certificate ends. `None`: it is none, or ends before 1970.
pub(super) fn expiry(certificate: &[u8]) -> Option<SystemTime> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(certificate, SEQUENCE)?;
    let signed = element(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_, rest) = element(signed, INTEGER)?;
    let (_, rest) = element(rest, SEQUENCE)?;
    let (_, rest) = element(rest, SEQUENCE)?;
    let (validity, _) = element(rest, SEQUENCE)?;
    let (_, _, not_after) = any(validity)?;
    let (tag, text, _) = any(not_after)?;
    time(tag, text)
}

/// The content of the first element, if it has this tag, and what follows it.
fn element(bytes: &[u8], wanted: u8) -> Option<(&[u8], &[u8])> {
    let (tag, content, rest) = any(bytes)?;
    (tag == wanted).then_some((content, rest))
}

/// Tag and content of the first element, and what follows it.
fn any(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = bytes.split_first_chunk()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // More bytes of length than these are no certificate.
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x0f))?;
            let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    let year_digits = match tag {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    let (digits, b"Z") = text.split_at_checked(year_digits + 10)? else {
        return None;
    };
    let (year, rest) = digits.split_at(year_digits);
    let year = match (tag, number(year)?) {
        (UTC_TIME, year @ 50..) => 1900 + year,
        (UTC_TIME, year) => 2000 + year,
        (_, year) => year,
    };
    let mut parts = rest.chunks(2).map(number);
    let mut next = || parts.next().flatten();
    let (month, day, hour, minute, second) = (next()?, next()?, next()?, next()?, next()?);
    let seconds = days(year, month, day)? * DAY_SECONDS + hour * 3_600 + minute * 60 + second;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| match digit {
        b'0'..=b'9' => Some(number * 10 + u64::from(digit - b'0')),
        _ => None,
    })
}

/// Days from 1970-01-01 to a day of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let before_month = BEFORE_MONTH.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let leap_days = |years: u64| years / 4 - years / 100 + years / 400;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let leap_day = u64::from(is_leap && month > 2);
    let years = year.checked_sub(1970)? * 365 + leap_days(year - 1) - leap_days(1969);
    Some(years + before_month + leap_day + day.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    fn seconds(tag: u8, text: &str) -> Option<u64> {
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        time(tag, text.as_bytes()).map(since)
    }

    #[test]
    fn times_are_read_in_both_forms() {
        for (tag, text, wanted) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "991231235959Z", 946_684_799),
            (UTC_TIME, "000229120000Z", 951_825_600),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "20240301000000Z", 1_709_251_200),
            (GENERALIZED_TIME, "99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(seconds(tag, text), Some(wanted), "{text}");
        }
        for (tag, text) in [
            (UTC_TIME, "500101000000Z"),
            (UTC_TIME, "20500101000000Z"),
            (UTC_TIME, "700101000000"),
            (UTC_TIME, "700101000000+0100"),
            (UTC_TIME, "701301000000Z"),
            (UTC_TIME, "700001000000Z"),
            (UTC_TIME, "700100000000Z"),
            (GENERALIZED_TIME, "2050010100000xZ"),
            (SEQUENCE, "700101000000Z"),
        ] {
            assert_eq!(seconds(tag, text), None, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_real_certificate_is_found() {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 5, 17);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let wanted = SystemTime::UNIX_EPOCH + Duration::from_secs(1_936_742_400);
        assert_eq!(expiry(certificate.der()), Some(wanted));
        for end in 0..certificate.der().len() {
            assert_eq!(expiry(&certificate.der()[..end]), None, "cut at {end}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, at: proptest::sample::Index, byte: u8) {
            static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| {
                let params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
                let key = rcgen::KeyPair::generate().unwrap();
                params.self_signed(&key).unwrap().der().to_vec()
            });
            expiry(&bytes);
            let mut damaged = WHOLE.clone();
            let at = at.index(damaged.len());
            damaged[at] = byte;
            expiry(&damaged);
        }
    }
}
