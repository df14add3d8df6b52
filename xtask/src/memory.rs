//! How much memory a process holds, as Linux tells it (proc(5)).

use std::fs;

use crate::command::Failure;

/// KiB that it holds now.
pub fn resident(process: u32) -> Result<u64, Failure> {
    read(process, "VmRSS:")
}

/// The most KiB that it has held since its start, or since [`forget_peak`].
pub fn peak(process: u32) -> Result<u64, Failure> {
    read(process, "VmHWM:")
}

/// Lets [`peak`] begin anew.
pub fn forget_peak(process: u32) -> Result<(), Failure> {
    Ok(fs::write(format!("/proc/{process}/clear_refs"), "5")?)
}

fn read(process: u32, name: &str) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    line(&status, name).ok_or_else(|| Failure::new(format!("no {name}")))
}

/// KiB of one line.
fn line(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|it| it.strip_prefix(name))?;
    line.trim().strip_suffix(" kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_proc() {
        let status = "VmPeak:\t  9 kB\nVmHWM:\t    77 kB\nVmRSS:\t  1234 kB\nThreads:\t1\n";
        assert_eq!(line(status, "VmRSS:"), Some(1234));
        assert_eq!(line(status, "VmHWM:"), Some(77));
        assert_eq!(line("Name:\tx\n", "VmRSS:"), None);
    }

    #[test]
    fn the_peak_begins_anew() -> Result<(), Failure> {
        let own = std::process::id();
        assert!(resident(own)? > 0);
        drop(std::hint::black_box(vec![1_u8; 64 << 20]));
        assert!(peak(own)? >= 64 << 10);
        forget_peak(own)
    }
}
