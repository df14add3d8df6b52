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

/// What the memory that a process holds is, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Pages of files, above all of the program: the system takes them back when it needs memory.
    pub files: u64,
    /// What mimalloc has: mappings of a gibibyte, of which little is used.
    pub arenas: u64,
    /// Stacks, and what C libraries have.
    pub others: u64,
}

/// The parts of what it holds now.
pub fn parts(process: u32) -> Result<Parts, Failure> {
    let maps = fs::read_to_string(format!("/proc/{process}/smaps"))?;
    Ok(sum(&maps))
}

/// The least size of a mapping that is an arena, in KiB.
const ARENA: u64 = 512 * 1024;

fn sum(maps: &str) -> Parts {
    let (mut parts, mut is_file, mut size) = (Parts::default(), false, 0);
    for row in maps.lines() {
        if let Some(kib) = line(row, "Size:") {
            size = kib;
        } else if let Some(kib) = line(row, "Rss:") {
            match (is_file, size >= ARENA) {
                (true, _) => parts.files += kib,
                (false, true) => parts.arenas += kib,
                (false, false) => parts.others += kib,
            }
        } else if !row.split(' ').next().is_some_and(|it| it.ends_with(':')) {
            is_file = row.contains(" /");
        }
    }
    parts
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

    #[test]
    fn memory_is_told_apart_by_its_mappings() {
        let maps = "55d0-55d1 r-xp 00000000 fe:00 12 /usr/bin/it\nSize: 800 kB\nRss: 300 kB\n\
                    4670-4671 rw-p 00000000 00:00 0 \nSize:  1048576 kB\nRss:  5000 kB\n\
                    Anonymous: 5000 kB\n\
                    7ffe-7fff rw-p 00000000 00:00 0 [stack]\nSize: 132 kB\nRss: 20 kB\n";
        let expected = Parts {
            files: 300,
            arenas: 5000,
            others: 20,
        };
        assert_eq!(sum(maps), expected);
    }
}
