//! The table's memory in this process.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::AsRawFd;
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

impl Mapping {
    /// The file must be at least this long, and not be shortened while it is mapped: touching what is
    /// no more there ends the process.
    pub fn new(file: &File, words: usize) -> io::Result<Mapping> {
        // SAFETY: the kernel chooses the address, and the file is open.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                words * 8,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Mapping { at, words })
    }
}

impl Mapping {
    /// Gives the memory back while others may still read it: it is nobody's from now on, all zero. What
    /// fails leaves it as it is.
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
