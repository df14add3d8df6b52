//! What connections take of memory, of a process and of the kernel.

use std::fs;

/// Pages of Linux on the processors that this is built for.
const PAGE: u64 = 4096;

/// Memory at an instant, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Memory {
    /// The proportional set size of the processes.
    pub proportional: u64,
    pub resident: u64,
    /// Unreclaimable slabs of the kernel and pages of TCP's buffers, whoever has them.
    pub kernel: u64,
}

/// Asks the kernel for the memory of some processes, and its own.
pub(super) fn read(processes: &[u32]) -> Memory {
    // Each once, so that the figures are of one instant.
    let texts: Vec<String> = processes
        .iter()
        .filter_map(|number| fs::read_to_string(format!("/proc/{number}/smaps_rollup")).ok())
        .collect();
    let of = |name: &str| -> u64 { texts.iter().map(|text| kibibytes(text, name) * 1024).sum() };
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let sockets = fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    Memory {
        proportional: of("Pss:"),
        resident: of("Rss:"),
        kernel: kibibytes(&machine, "SUnreclaim:") * 1024 + tcp_pages(&sockets) * PAGE,
    }
}

fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    number.unwrap_or(0)
}

/// The pages that TCP uses, as `/proc/net/sockstat` says.
fn tcp_pages(sockets: &str) -> u64 {
    let line = sockets.lines().find_map(|line| line.strip_prefix("TCP:"));
    let mut words = line.unwrap_or_default().split_ascii_whitespace();
    words.find(|word| *word == "mem");
    words.next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found() {
        let text = "Rss:   2048 kB\nPss:     512 kB\nPss_Anon: 7 kB\n";
        assert_eq!(
            (kibibytes(text, "Pss:"), kibibytes(text, "Swap:")),
            (512, 0)
        );
        let sockets = "sockets: used 9\nTCP: inuse 4 orphan 0 tw 7 alloc 6 mem 3\nUDP: mem 9\n";
        assert_eq!((tcp_pages(sockets), tcp_pages("")), (3, 0));
    }

    #[test]
    fn this_process_has_memory() {
        let memory = read(&[std::process::id()]);
        assert!(memory.proportional > 0 && memory.resident >= memory.proportional);
        assert!(memory.kernel > 0);
    }
}
