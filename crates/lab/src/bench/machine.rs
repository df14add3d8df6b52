//! What the machine is, and what time it is.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use super::outcome::Machine;
use super::process::Cores;

/// Asks the kernel.
pub(crate) fn facts(cores: &Cores) -> Machine {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_model = |line: &&str| line.starts_with("model name");
    let model = processor.lines().find(is_model);
    let model = model.and_then(|line| line.split_once(": "));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|text| text.split_ascii_whitespace().next()?.parse::<u64>().ok());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        kernel: kernel.trim().to_owned(),
        processor: model.map_or("unknown", |(_, name)| name).to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mib: total.unwrap_or(0) / 1024,
        layout: layout(cores),
    }
}

fn layout(cores: &Cores) -> String {
    let awake = if cores.awake.is_some() {
        ", kept awake"
    } else {
        ""
    };
    format!("{}{awake}", places(cores))
}

fn places(cores: &Cores) -> String {
    let system = cores.system;
    if cores.load == cores.stub {
        let load = &cores.load;
        return format!("system on core {system}, load generator and stub together on {load:?}");
    }
    let (load, stub) = (&cores.load, &cores.stub);
    format!("system on core {system}, load generator on {load:?}, stub on {stub:?}")
}

/// Now, in UTC, as RFC 3339 writes it.
pub(crate) fn now() -> String {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
    date(elapsed.map_or(0, |elapsed| elapsed.as_secs()))
}

/// Days to a date by Howard Hinnant's `civil_from_days`.
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let time = seconds % 86_400;
    let (hour, minute) = (time / 3600, time / 60 % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z",
        time % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_826_210), "2000-02-29T12:10:10Z");
        assert_eq!(date(1_767_225_599), "2025-12-31T23:59:59Z");
    }
}
