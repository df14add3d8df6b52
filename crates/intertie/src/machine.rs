//! What the machine, its container and `ulimit` leave to the process: file descriptors, memory and
//! address space.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use net::descriptors::Shares;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The stack of a worker: expressions may nest deeply. Memory is only used as far as the stack is,
/// but address space is used at once.
const STACK_MAX: u64 = 256 << 20;
/// What a worker needs at least.
const STACK_MIN: u64 = 2 << 20;

/// Raises the limit of open files (`ulimit -n`) as far as the process may, and shares it out
/// between clients, back ends and the rest. Gives the limit, unless there is none.
pub(crate) fn raise_descriptors() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limits.maximum,
        ..limits
    };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limits.maximum,
        // Some systems have a lower bound than the one that they tell.
        Err(error) => {
            tracing::debug!(%error, "the limit of open files cannot be raised");
            limits.current
        }
    };
    if let Some(limit) = limit {
        Shares::of(limit).apply();
    }
    limit
}

/// What is to be said at start when file descriptors do not suffice for this many client
/// connections: what can be reached, and what to do about it.
pub(crate) fn descriptors_missing(limit: Option<u64>, connections: usize) -> Option<String> {
    let limit = limit?;
    // The lowest number that is free: so many are in use.
    let in_use = fs::File::open("/dev/null").map_or(0, |file| file.as_raw_fd());
    missing(
        limit,
        u64::try_from(in_use).unwrap_or(0),
        connections as u64,
    )
}

fn missing(limit: u64, in_use: u64, connections: u64) -> Option<String> {
    let Shares { clients, .. } = Shares::of(limit);
    let room = clients.saturating_sub(in_use);
    if room >= connections {
        return None;
    }
    let needed = Shares::needed(connections + in_use);
    Some(format!(
        "of limits.connections: {connections} only {room} can be open: the process may open \
         {limit} files, uses {in_use}, and keeps {} for back ends, files and the admin port. Allow \
         {needed} (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile= of a container), or lower \
         limits.connections",
        limit - clients
    ))
}

/// The stack for each of so many threads that run expressions, in bytes: less where the address
/// space is limited (`ulimit -v`), half of which is left to everything else.
pub(crate) fn stack(threads: usize) -> usize {
    let room = address_space();
    let size = room.map_or(STACK_MAX, |room| stack_within(room, threads as u64));
    size as usize
}

fn stack_within(room: u64, threads: u64) -> u64 {
    // One more is for the admin port, which begins later.
    let share = room / 2 / (threads + 1);
    (share & !0xffff).clamp(STACK_MIN, STACK_MAX)
}

/// What to say when a thread cannot be started.
pub(crate) fn no_thread(stack: usize) -> String {
    let stack = stack >> 20;
    match address_space() {
        Some(room) => format!(
            "cannot start a thread with a stack of {stack} MiB: of the address space that the \
             process may have (ulimit -v), {} MiB are left; allow more or start fewer --workers",
            room >> 20
        ),
        None => format!("cannot start a thread with a stack of {stack} MiB"),
    }
}

/// How many bytes of address space are left, where they are limited.
fn address_space() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .next()
        .and_then(|it| it.parse::<u64>().ok());
    let used = pages.unwrap_or(0) * rustix::param::page_size() as u64;
    Some(limit.saturating_sub(used))
}

/// The budget for bodies when the settings name none: half of the memory that the process may have.
pub(crate) fn body_memory() -> u64 {
    memory() / 2
}

/// The memory that the process may have: that of its control group, or of the machine, or its
/// address space.
fn memory() -> u64 {
    let machine = || {
        let text = fs::read_to_string("/proc/meminfo").ok()?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
        Some(kib << 10)
    };
    let group = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group_limit(Path::new("/sys/fs/cgroup"), &group);
    let space = getrlimit(Resource::As).current;
    let least = [machine(), group, space].into_iter().flatten().min();
    // A system that tells nothing is taken for one of 4 GiB.
    least.unwrap_or(4 << 30)
}

/// The smallest limit of a control group and those around it, of either version (cgroups(7)).
/// `groups` is `/proc/self/cgroup`; within a container the group's path may not exist, and the
/// root is its own.
fn group_limit(root: &Path, groups: &str) -> Option<u64> {
    let mut files: Vec<PathBuf> = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let (base, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            it if it.split(',').any(|it| it == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = base.join(path);
        let around = group.ancestors().take_while(|it| it.starts_with(&base));
        files.extend(around.map(|folder| folder.join(file)));
    }
    let limits = files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok());
    // `max` stands for no limit.
    limits.filter_map(|text| text.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use testkit::TempDir;

    use super::*;

    #[test]
    fn a_start_with_too_few_descriptors_says_what_is_reached_and_what_is_needed() {
        assert_eq!(missing(65_536, 40, 20_000), None);
        let text = missing(256, 40, 20_000).unwrap();
        for part in [
            "20000 only 152 ",
            "256 files, uses 40",
            "keeps 64 ",
            "Allow 24136 ",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(missing(24_136, 40, 20_000), None);
        assert!(missing(16, 20, 10).unwrap().contains("only 0 "));
    }

    #[test]
    fn stacks_take_half_of_a_small_address_space() {
        assert_eq!(stack_within(1 << 40, 8), STACK_MAX);
        assert_eq!(stack_within(300 << 20, 2), 50 << 20);
        assert_eq!(stack_within(10 << 20, 64), STACK_MIN);
    }

    #[test]
    fn the_smallest_limit_of_a_control_group_holds() {
        let folder = TempDir::new();
        let group = "0::/system.slice/intertie.service\n";
        assert_eq!(group_limit(folder.path(), group), None);
        folder.write("system.slice/intertie.service/memory.max", "max\n");
        folder.write("system.slice/memory.max", "1073741824\n");
        folder.write("memory.max", "2147483648\n");
        assert_eq!(group_limit(folder.path(), group), Some(1 << 30));
        folder.write("system.slice/intertie.service/memory.max", "268435456\n");
        assert_eq!(group_limit(folder.path(), group), Some(256 << 20));
    }

    #[test]
    fn limits_of_the_first_version_and_of_containers_are_seen() {
        let folder = TempDir::new();
        folder.write("memory/memory.limit_in_bytes", "536870912\n");
        let group = "5:cpu,memory:/docker/0123\n4:pids:/docker/0123\n0::/docker/0123\n";
        assert_eq!(group_limit(folder.path(), group), Some(512 << 20));
        folder.write("memory.max", "268435456\n");
        assert_eq!(group_limit(folder.path(), group), Some(256 << 20));
    }

    #[test]
    fn this_machine_has_some_memory() {
        assert!(body_memory() > 1 << 20);
    }
}
