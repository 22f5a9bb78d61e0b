//! Processes: who writes, and whether it still lives.
//!
//! A participant says who it is in one word: a generation, the time at which its process began, its pid.
//! So nobody ever sees the one of another with the other.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

const PID_BITS: u32 = 22;
const START_BITS: u32 = 26;
const PIDS: u64 = (1 << PID_BITS) - 1;
const STARTS: u64 = (1 << START_BITS) - 1;

/// The pid in a participant's word; 0 if the number is nobody's.
pub fn pid(who: u64) -> u32 {
    (who & PIDS) as u32
}

/// The word of a number that nobody has, behind this one.
pub fn vacant(who: u64) -> u64 {
    (who >> (PID_BITS + START_BITS)).wrapping_add(1) << (PID_BITS + START_BITS)
}

/// The word of this process, in a number that nobody has.
pub fn this(vacant: u64) -> u64 {
    let pid = std::process::id();
    // 0 if /proc is not there: then only the pid counts.
    vacant | start(pid).unwrap_or(0) << PID_BITS | u64::from(pid)
}

/// Returns whether the process is gone. One of which nothing can be learned is not.
pub fn is_dead(who: u64) -> bool {
    let pid = pid(who);
    if pid == 0 {
        return true;
    }
    // A file descriptor of the process tells what /proc may hide, and a zombie from the living. Of a pid
    // that is a mere thread's by now it says EINVAL.
    match open(pid) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => {
            return true
        }
        Ok(process) if has_ended(&process) => return true,
        Ok(_) => {}
        // Not to be had: an old kernel, or too many files.
        Err(_) => {
            // SAFETY: takes no pointer; signal 0 is none.
            let failed = unsafe { libc::kill(pid as i32, 0) } != 0;
            if failed && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
                return true;
            }
        }
    }
    // The pid may be another process' by now.
    let (began, told) = (start(pid), who >> PID_BITS & STARTS);
    told != 0 && began.is_some_and(|began| began != told)
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and is nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one element, which outlives the call.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}

/// The time at which a process began, in ticks, as far as it fits the word; `None` if it cannot be learned.
fn start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is a name, and may hold anything.
    let rest = stat.rsplit_once(')')?.1;
    let ticks: u64 = rest.split_whitespace().nth(19)?.parse().ok()?;
    Some((ticks & STARTS).max(1))
}

/// The number of a namespace of this process: `pid` or `time`; 0 where the kernel knows none.
pub fn namespace(kind: &str) -> u64 {
    fs::metadata(format!("/proc/self/ns/{kind}")).map_or(0, |file| file.ino())
}

/// The number of this boot, in two words.
pub fn boot() -> [u64; 2] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).unwrap_or(0);
    [number as u64, (number >> 64) as u64]
}

/// A number that differs on the two sides of a fork, for one load: it lies in a page that the kernel
/// wipes in a child, however the child came about.
pub fn life() -> u64 {
    static PAGE: OnceLock<&'static AtomicU64> = OnceLock::new();
    static LAST: AtomicU64 = AtomicU64::new(0);
    let life = PAGE.get_or_init(wiped_page);
    // Relaxed: who runs in a child came after the fork.
    match life.load(Relaxed) {
        0 => {
            let next = LAST.fetch_add(1, Relaxed) + 1;
            // Another thread of the child may have been first.
            life.compare_exchange(0, next, Relaxed, Relaxed).map_or_else(|seen| seen, |_| next)
        }
        life => life,
    }
}

fn wiped_page() -> &'static AtomicU64 {
    const PAGE: usize = 4096;
    // SAFETY: a new mapping, of which nothing is unmapped any more; one page holds a word.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(
            std::ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
        assert!(page != libc::MAP_FAILED, "a page of memory");
        assert_eq!(libc::madvise(page, PAGE, libc::MADV_WIPEONFORK), 0, "Linux 4.14 or later");
        &*page.cast::<AtomicU64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_lives_until_it_ends_and_a_zombie_is_dead() {
        let me = this(vacant(0));
        assert!(!is_dead(me) && pid(me) == std::process::id());
        assert!(is_dead(vacant(me)) && is_dead(0));
        // The same pid, and another beginning.
        assert!(is_dead(me ^ 1 << PID_BITS));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let who = start(child.id()).unwrap() << PID_BITS | u64::from(child.id());
        assert!(!is_dead(who));
        drop(child.stdin.take());
        // Waited for, and not reaped.
        // SAFETY: the structure outlives the call.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(libc::waitid(libc::P_PID, child.id(), &mut info, options), 0);
        }
        assert!(is_dead(who));
        child.wait().unwrap();
        assert!(is_dead(who));
    }

    #[test]
    fn a_child_is_another_life() {
        let before = life();
        assert_eq!(life(), before);
        // SAFETY: the child calls nothing that takes a lock, and leaves at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let same = life() == before || life() == 0 || life() != life();
            // SAFETY: ends the child without running what is the parent's.
            unsafe { libc::_exit(i32::from(same)) };
        }
        let mut status = 0;
        // SAFETY: the status outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(life(), before);
    }
}
