//! Processes: who writes, and whether it still lives.
//!
//! A participant says who it is in one word: a generation, the time at which its process began, its pid.
//! So nobody ever sees the one of another with the other.
//!
//! A process that calls exec keeps its pid and its beginning, and has none of the threads that wrote. A second
//! word, the *image*, therefore describes the program that wrote: where the kernel put its code and its
//! stack, whether it had called exec since its fork, and the kernel's random bytes for it. Other processes
//! compare the first two, of which the kernel shows the first only to the same user and to root; the process
//! itself compares all. The image holds the number of the next generation, and counts only beside a first word
//! of this one: one that was never written is 0.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::OnceLock;

use crate::layout::hash::hash;

const PID_BITS: u32 = 22;
const START_BITS: u32 = 26;
const PIDS: u64 = (1 << PID_BITS) - 1;
const STARTS: u64 = (1 << START_BITS) - 1;
const GENERATIONS: u64 = !0 << (PID_BITS + START_BITS);

/// Parts of an image.
const PLACES: u64 = (1 << 32) - 1;
const FORKED: u64 = 1 << 32;
const RANDOM: u64 = !GENERATIONS & !FORKED & !PLACES;

/// The pid in a participant's word; 0 if the number is nobody's.
pub fn pid(who: u64) -> u32 {
    (who & PIDS) as u32
}

/// The next word of a vacant number, after this one.
pub fn vacant(who: u64) -> u64 {
    (who >> (PID_BITS + START_BITS)).wrapping_add(1) << (PID_BITS + START_BITS)
}

/// The word of this process, in a number that was vacant.
pub fn this(vacant: u64) -> u64 {
    let pid = std::process::id();
    // 0 if /proc is not there: then only the pid counts.
    vacant | Stat::of(pid).map_or(0, |stat| stat.start) << PID_BITS | u64::from(pid)
}

/// The image of this process, for the number whose word is `who`.
pub fn image(who: u64) -> u64 {
    vacant(who) | random_bits() | Stat::of(std::process::id()).map_or(0, |stat| stat.image)
}

/// Returns whether the process has called exec since it wrote this image. False where that cannot be known.
fn has_changed(who: u64, image: u64, now: &Stat) -> bool {
    if image & GENERATIONS != vacant(who) {
        return false;
    }
    let (before, after) = (image & PLACES, now.image & PLACES);
    let moved = before != 0 && after != 0 && before != after;
    // Set by a fork, and never again once an exec has cleared it.
    let executed = image & FORKED != 0 && now.image & FORKED == 0;
    let drawn_anew = pid(who) == std::process::id() && image & RANDOM != random_bits();
    moved || executed || drawn_anew
}

/// Bits of the random bytes that the kernel gives a program at its exec.
fn random_bits() -> u64 {
    static BITS: OnceLock<u64> = OnceLock::new();
    *BITS.get_or_init(|| {
        // SAFETY: takes no pointer.
        let at = unsafe { libc::getauxval(libc::AT_RANDOM) } as *const [u8; 16];
        // SAFETY: the kernel has put 16 bytes there, on the stack of the first thread, for good.
        let bytes = unsafe { at.as_ref() };
        bytes.map_or(0, |bytes| hash(bytes, [0, 0]) & RANDOM)
    })
}

/// Returns whether the process is gone, or another program by now. One of which nothing can be learned is
/// not.
pub fn is_dead(who: u64, image: u64) -> bool {
    let pid = pid(who);
    if pid == 0 {
        return true;
    }
    // A file descriptor of the process shows what /proc may hide, and distinguishes a zombie from a
    // living process. For a pid that is a mere thread's by now the result is EINVAL.
    match open(pid) {
        Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => {
            return true
        }
        Ok(process) if has_ended(&process) => return true,
        Ok(_) => {}
        // Not to be had: an old kernel, or too many files.
        Err(_) => {
            // SAFETY: takes no pointer; signal 0 sends nothing.
            let failed = unsafe { libc::kill(pid as i32, 0) } != 0;
            if failed && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
                return true;
            }
        }
    }
    // The pid may be another process' by now.
    let told = who >> PID_BITS & STARTS;
    let differs = |now: Stat| now.start != told || has_changed(who, image, &now);
    told != 0 && Stat::of(pid).is_some_and(differs)
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointer.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just opened, and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one element, which outlives the call.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 && poll.revents & libc::POLLIN != 0 }
}

/// A process as /proc shows it.
struct Stat {
    /// The time at which it began, in ticks, as far as it fits the word.
    start: u64,
    /// Its image, but for generation and random bits.
    image: u64,
}

impl Stat {
    /// `None` if nothing can be learned.
    fn of(pid: u32) -> Option<Stat> {
        /// The kernel's flag of a process that was forked and has not called exec.
        const FORKED_NO_EXEC: u64 = 0x40;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The second field is a name, and may hold anything.
        let rest = stat.rsplit_once(')')?.1;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let field = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
        let forked = field(9)? & FORKED_NO_EXEC != 0;
        let places = match (field(26), field(28)) {
            // To a stranger they are 1 and 0.
            (Some(code), Some(stack)) if stack != 0 => {
                let bytes = [code.to_le_bytes(), stack.to_le_bytes()].concat();
                (hash(&bytes, [0, 0]) & PLACES).max(1)
            }
            _ => 0,
        };
        let start = (field(22)? & STARTS).max(1);
        Some(Stat { start, image: places | if forked { FORKED } else { 0 } })
    }
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

/// A number that differs on the two sides of a fork, for one load: it is in a page that the kernel
/// wipes in a child, however the child was made.
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
    use crate::memory::process::*;

    #[test]
    fn a_process_lives_until_it_ends_and_a_zombie_is_dead() {
        let me = this(vacant(0));
        assert!(!is_dead(me, image(me)) && pid(me) == std::process::id());
        assert!(is_dead(vacant(me), image(me)) && is_dead(0, 0));
        // The same pid, but another start time.
        assert!(is_dead(me ^ 1 << PID_BITS, image(me)));
        // The same process, but another program: other addresses, or random bytes.
        assert!(is_dead(me, image(me) ^ 1) && is_dead(me, image(me) ^ 1 << 40));
        // An image that is not this number's, or not written yet.
        assert!(!is_dead(me, 0) && !is_dead(me, image(vacant(me)) ^ 1));
        let mut child =
            std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let began = Stat::of(child.id()).unwrap().start;
        let who = began << PID_BITS | u64::from(child.id());
        assert!(!is_dead(who, 0));
        drop(child.stdin.take());
        // Waited for, and not reaped.
        // SAFETY: the structure outlives the call.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WEXITED | libc::WNOWAIT;
            assert_eq!(libc::waitid(libc::P_PID, child.id(), &mut info, options), 0);
        }
        assert!(is_dead(who, 0));
        child.wait().unwrap();
        assert!(is_dead(who, 0));
    }

    #[test]
    fn a_forked_child_is_another_process_identity() {
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
