//! The formats of time stamps.

use std::time::SystemTime;

use super::out::Out;

/// What the time column shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TimeForm {
    /// Seconds since the first packet of the file.
    #[default]
    Relative,
    /// Seconds since the previous packet shown.
    Delta,
    /// Date and time of day, UTC.
    Utc,
    /// Seconds since 1970.
    Epoch,
}

const NS: u64 = 1_000_000_000;

/// The time that others are relative to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    form: TimeForm,
    first: Option<u64>,
    last: u64,
}

impl Clock {
    pub fn new(form: TimeForm) -> Clock {
        Clock { form, first: None, last: 0 }
    }

    /// Whether times are shown relative to the previous packet.
    pub fn depends_on_last(&self) -> bool {
        self.form == TimeForm::Delta
    }

    /// Notes a record, shown or not.
    #[inline]
    pub fn see(&mut self, time_ns: u64) {
        if self.first.is_none() {
            self.first = Some(time_ns);
            self.last = time_ns;
        }
    }

    #[inline]
    pub fn write(&mut self, out: &mut Vec<u8>, time_ns: u64) {
        match self.form {
            TimeForm::Relative => seconds(out, time_ns, self.first.unwrap_or(time_ns)),
            TimeForm::Delta => seconds(out, time_ns, self.last),
            TimeForm::Epoch => seconds(out, time_ns, 0),
            TimeForm::Utc => utc(out, time_ns),
        }
        self.last = time_ns;
    }
}

/// `time - origin` in seconds with nine decimals, at least 14 characters.
#[inline]
pub fn seconds(out: &mut Vec<u8>, time_ns: u64, origin_ns: u64) {
    let distance = time_ns.abs_diff(origin_ns);
    let whole = distance / NS;
    if time_ns < origin_ns {
        let from = out.len();
        out.push(b'-');
        out.dec(whole);
        let written = out.len() - from;
        for _ in written..4 {
            out.insert(from, b' ');
        }
    } else if whole < 1000 {
        // Then the whole text has a fixed size, which is fast.
        let mut text = *b"    .000000000";
        digits(&mut text[..4], whole, b' ');
        digits(&mut text[5..], distance % NS, b'0');
        out.extend_from_slice(&text);
        return;
    } else {
        out.dec_wide(whole, 4);
    }
    out.push(b'.');
    out.dec_zeros(distance % NS, 9);
}

/// Writes a number that fits at the end of `place`, padded in front with `fill`.
#[inline(always)]
fn digits(place: &mut [u8], value: u64, fill: u8) {
    let mut value = value as u32;
    let last = place.len() - 1;
    for (i, digit) in place.iter_mut().enumerate().rev() {
        *digit = if value == 0 && i < last { fill } else { b'0' + (value % 10) as u8 };
        value /= 10;
    }
}

/// `2026-01-31 12:34:56 UTC`.
pub fn date(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut text = Vec::new();
    utc(&mut text, u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    let text = String::from_utf8_lossy(&text);
    let (day, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{day} {} UTC", time.split('.').next().unwrap_or_default())
}

/// `2026-01-31T12:34:56.123456789Z`.
pub fn utc(out: &mut Vec<u8>, time_ns: u64) {
    let seconds = time_ns / NS;
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    out.dec_zeros(year, 4);
    for (mark, value) in
        [(b'-', month), (b'-', day), (b'T', of_day / 3600), (b':', of_day / 60 % 60), (b':', of_day % 60)]
    {
        out.push(mark);
        out.dec_zeros(value, 2);
    }
    out.push(b'.');
    out.dec_zeros(time_ns % NS, 9);
    out.push(b'Z');
}

/// Year, month and day of a day counted from 1970-01-01, by counting years from March so that the
/// leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn show(write: impl Fn(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn utc_dates_with_leap_days() {
        assert_eq!(show(|o| utc(o, 0)), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(show(|o| utc(o, 951_782_400 * NS + 5)), "2000-02-29T00:00:00.000000005Z");
        assert_eq!(show(|o| utc(o, 1_893_455_999 * NS)), "2029-12-31T23:59:59.000000000Z");
        assert_eq!(show(|o| utc(o, 4_107_542_400 * NS)), "2100-03-01T00:00:00.000000000Z");
    }

    #[test]
    fn a_date_for_people_has_whole_seconds() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(951_782_400_500);
        assert_eq!(date(time), "2000-02-29 00:00:00 UTC");
    }

    #[test]
    fn seconds_before_the_origin_are_negative() {
        assert_eq!(show(|o| seconds(o, 1_500_000_000, 0)), "   1.500000000");
        assert_eq!(show(|o| seconds(o, 0, 1_500_000_000)), "  -1.500000000");
        assert_eq!(show(|o| seconds(o, 12_345 * NS, 0)), "12345.000000000");
    }
}
