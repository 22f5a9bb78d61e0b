//! The table's memory in this process.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use crate::sync::AtomicU64;

/// A file in memory, as atomic words, for all of the mapping's life.
pub struct Mapping {
    at: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: it is nothing but atomic words, which no thread owns.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;
/// Most bytes that are asked for as huge pages: to clear more of them would be a wait that one notices.
const MOST_HUGE: u64 = 1 << 30;
/// Asks the kernel to put huge pages in the place of small ones, at once and whatever is set for shared
/// memory. Since Linux 6.1; not in all versions of `libc`.
const COLLAPSE: libc::c_int = 25;

impl Mapping {
    /// The file must be at least this long, and not be shortened while it is mapped: touching the
    /// missing part ends the process.
    pub fn new(file: &File, words: usize) -> io::Result<Mapping> {
        let bytes = words * 8;
        // Room for a huge page more, in which one begins where the file is to begin: only so can its huge
        // pages be mapped as such.
        let room = if bytes < HUGE { bytes } else { bytes + HUGE };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), room, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let before = if room == bytes { 0 } else { start.align_offset(HUGE) };
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: within the room, which has no other user, and the file is open.
        let at = unsafe {
            libc::mmap(start.byte_add(before), bytes, rights, flags, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            // SAFETY: as it was mapped above.
            unsafe { libc::munmap(start, room) };
            return Err(error);
        }
        let end = before + bytes.next_multiple_of(page());
        // SAFETY: the rest of the room, in whole pages, on both sides of the file.
        unsafe {
            if before > 0 {
                libc::munmap(start, before);
            }
            if end < room {
                libc::munmap(start.byte_add(end), room - end);
            }
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Mapping { at, words })
    }
}

/// Uses huge pages for the first pages of a file that has none yet, if the kernel allows it: then accessing a
/// row needs fewer page table lookups. Other pages are allocated later as small ones.
pub fn with_huge_pages(file: &File, bytes: u64) {
    let Ok(length) = usize::try_from(bytes.min(MOST_HUGE)) else { return };
    let length = length / HUGE * HUGE;
    if length == 0 || file.set_len(bytes).is_err() {
        return;
    }
    // The kernel makes a huge page of small ones only where there is one of them.
    if (0..length).step_by(HUGE).any(|at| file.write_at(&[0], at as u64).is_err()) {
        return;
    }
    if let Ok(mapping) = Mapping::new(file, length / 8) {
        // SAFETY: mapped as long as that.
        unsafe { libc::madvise(mapping.at.as_ptr().cast(), length, COLLAPSE) };
    }
}

/// Bytes of a page.
fn page() -> usize {
    // SAFETY: takes no pointer.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

impl Mapping {
    /// Frees the memory while other processes may still read it: it is zero from then on. If that fails, it
    /// is unchanged.
    pub fn give_back(&self) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: exactly what `new` has mapped, at once, so that the address is always there; and words
        // that change under those who read them are what atomic words are for.
        unsafe { libc::mmap(self.at.as_ptr().cast(), self.words * 8, rights, flags, -1, 0) };
    }
}

impl Deref for Mapping {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the words are mapped until the drop, begin at a page, and any bits are a word. Other
        // processes change them meanwhile, which is what atomic words are for.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.words) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; nobody borrows it any more.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.words * 8) };
    }
}
