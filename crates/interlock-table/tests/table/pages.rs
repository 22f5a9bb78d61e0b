//! The pages in which a table lies.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use crate::common::Place;
use interlock_table::table::{Options, Ttl, Where};

const HUGE: usize = 2 << 20;

/// Returns whether this kernel makes a huge page of small ones in shared memory, when asked.
fn kernel_has_huge_pages() -> bool {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE);
    let file = options.open("/dev/shm").unwrap();
    file.set_len(HUGE as u64).unwrap();
    file.write_all_at(&[1], 0).unwrap();
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let reserved = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a mapping of its own, which ends with the process; 25 is MADV_COLLAPSE.
    unsafe {
        let none = std::ptr::null_mut();
        let room = libc::mmap(none, 2 * HUGE, libc::PROT_NONE, reserved, -1, 0);
        assert_ne!(room, libc::MAP_FAILED);
        let at = room.byte_add(room.align_offset(HUGE));
        let shared = libc::MAP_SHARED | libc::MAP_FIXED;
        assert_eq!(libc::mmap(at, HUGE, rights, shared, file.as_raw_fd(), 0), at);
        libc::madvise(at, HUGE, 25) == 0
    }
}

/// KiB of a file that this process has mapped as huge pages.
fn huge(inode: u64) -> u64 {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut own = false;
    let mut sum = 0;
    for words in text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
        if words[0].contains('-') {
            own = words.get(4) == Some(&&*inode.to_string());
        } else if own && words[0] == "ShmemPmdMapped:" {
            sum += words[1].parse::<u64>().unwrap();
        }
    }
    sum
}

#[test]
fn creating_and_attaching_use_huge_pages_if_the_kernel_has_them() {
    let place = Place::new("pages");
    let options = Options { capacity: 100_000, ..Options::default() };
    let made = place.open("a: U64", &options);
    let key = |n: u64| n.to_le_bytes();
    let inode = std::fs::metadata(place.0.path().unwrap()).unwrap().ino();
    if !kernel_has_huge_pages() {
        println!("this kernel gives none");
        return;
    }
    made.write(&key(1), &[0], Ttl::Usual, Where::Anywhere).unwrap();
    let before = huge(inode);
    let attached = place.open("a: U64", &options);
    (0..1000).for_each(|n| assert!(attached.contains(&key(n)).is_ok()));
    assert!(before > 0 && huge(inode) > before, "{before} KiB, then {}", huge(inode));
}
