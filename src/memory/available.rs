//! Whether the system has the memory that faulting a range in takes. It does not say no: it ends a process, this one or
//! another.

use std::path::Path;

/// Ranges from this length on are looked at: one below it does not exhaust a machine.
pub(crate) const LARGE: usize = 64 << 20;

/// Pages that are looked at with one call.
const AT_ONCE: usize = 1 << 18;

/// Whether the pages that are missing between two page boundaries are no more than the system can still give.
pub(crate) fn suffices(start: usize, end: usize, page: usize) -> bool {
    let Some(available) = available() else { return true };
    (end - start) as u64 <= available || missing(start, end, page, available) <= available
}

/// Bytes that are not in memory, as far as the range is mapped: faulting it in ends there. No more are counted than it takes to
/// exceed `most`.
fn missing(start: usize, end: usize, page: usize, most: u64) -> u64 {
    let mut resident = vec![0_u8; AT_ONCE.min((end - start) / page)];
    let mut bytes = 0;
    for from in (start..end).step_by(AT_ONCE * page) {
        let length = (end - from).min(AT_ONCE * page);
        // SAFETY: changes no memory but the list, which has a byte for each page of the range.
        let looked = unsafe {
            libc::mincore(std::ptr::with_exposed_provenance_mut(from), length, resident.as_mut_ptr())
        };
        if looked != 0 || bytes > most {
            break;
        }
        let missing = resident[..length / page].iter().filter(|state| *state & 1 == 0).count();
        bytes += (missing * page) as u64;
    }
    bytes
}

/// What the system can still give, in bytes: what is free or can be freed, and swap. Control groups (version 2) may leave
/// less. `None` if the system does not say.
fn available() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok()?;
    let swap = figure(&machine, "SwapFree:")? << 10;
    let mut available = (figure(&machine, "MemAvailable:")? << 10) + swap;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    for group in group.map(Path::new).into_iter().flat_map(Path::ancestors) {
        let directory = Path::new("/sys/fs/cgroup").join(group);
        available = left_to(&directory, swap).map_or(available, |left| left.min(available));
    }
    Some(available)
}

/// What a control group leaves, if it has a limit.
fn left_to(group: &Path, swap: u64) -> Option<u64> {
    let text = |file| std::fs::read_to_string(group.join(file)).ok();
    let number = |file| text(file)?.trim().parse::<u64>().ok();
    let left = number("memory.max")?.saturating_sub(number("memory.current")?);
    // Pages of files make room.
    let stat = text("memory.stat")?;
    let files = figure(&stat, "active_file")? + figure(&stat, "inactive_file")?;
    let swap_left = number("memory.swap.max").zip(number("memory.swap.current"));
    let swap = swap_left.map_or(swap, |(most, used)| most.saturating_sub(used).min(swap));
    Some(left + files + swap)
}

/// The number behind a name.
fn figure(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_the_system_are_found() {
        let text = "MemTotal:       24591804 kB\nMemAvailable:   20 kB\nactive_file 7\nempty\n";
        assert_eq!(figure(text, "MemAvailable:"), Some(20));
        assert_eq!(figure(text, "active_file"), Some(7));
        assert_eq!(figure(text, "SwapFree:"), None);
        assert_eq!(figure(text, "empty"), None);
        assert!(available().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn a_control_group_leaves_what_it_has_not_used() {
        let group = std::env::temp_dir().join(format!("softrnic-group-{}", std::process::id()));
        std::fs::create_dir_all(&group).expect("a directory");
        let write = |file, text: &str| std::fs::write(group.join(file), text).expect("a file");
        assert_eq!(left_to(&group, 5), None);
        write("memory.max", "max\n");
        write("memory.current", "400\n");
        write("memory.stat", "anon 300\ninactive_file 60\nactive_file 40\n");
        assert_eq!(left_to(&group, 5), None, "it has no limit");
        write("memory.max", "1000\n");
        assert_eq!(left_to(&group, 5), Some(600 + 100 + 5));
        write("memory.swap.max", "3\n");
        write("memory.swap.current", "1\n");
        assert_eq!(left_to(&group, 5), Some(600 + 100 + 2));
        std::fs::remove_dir_all(&group).expect("the directory");
    }
}
