//! System calls on one socket.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// `None`: nothing there now. `Some(0)`: the other end is done.
pub fn receive(fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
    // SAFETY: the kernel writes at most the buffer's length.
    let count = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    outcome(count)
}

/// `None`: no room now.
pub fn send(fd: RawFd, parts: &[&[u8]]) -> io::Result<Option<usize>> {
    if let [one] = parts {
        // SAFETY: reads within the slice.
        let count = unsafe { libc::send(fd, one.as_ptr().cast(), one.len(), libc::MSG_NOSIGNAL) };
        return outcome(count);
    }
    let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PARTS];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        *vector = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
    }
    // SAFETY: all zeros is a valid msghdr; the vectors live through the call and are only read.
    let count = unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = vectors.as_mut_ptr();
        message.msg_iovlen = parts.len().min(PARTS) as _;
        libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL)
    };
    outcome(count)
}

/// Lets more connections wait to be taken than the standard library does: a crowd that comes back at
/// once after a restart must not be turned away.
pub fn listen(fd: RawFd) -> io::Result<()> {
    // SAFETY: no pointers. On a socket that listens already it only changes the number.
    if unsafe { libc::listen(fd, BACKLOG) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Replies are small and wanted now.
pub fn no_delay(fd: RawFd) {
    let one: libc::c_int = 1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: reads one c_int. Failure only makes the socket slower.
    unsafe {
        let value = (&raw const one).cast();
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, value, size);
    }
}

fn outcome(count: isize) -> io::Result<Option<usize>> {
    if count >= 0 {
        return Ok(Some(count as usize));
    }
    let error = io::Error::last_os_error();
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// Returns whether a read would give something, its end included.
pub fn has_input(socket: &OwnedFd) -> bool {
    let mut byte = 0u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: one byte of our own to write to.
    unsafe { libc::recv(socket.as_raw_fd(), (&raw mut byte).cast(), 1, flags) >= 0 }
}

/// As much as the kernel allows (net.core.somaxconn).
const BACKLOG: libc::c_int = 65535;
/// Pieces of one send.
pub const PARTS: usize = 64;
