//! Listening sockets passed to the process by its parent, such as systemd.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::net::listener::Listener;

/// The listener behind a descriptor, which stays the caller's: this one is a copy of it. Not its
/// address either: a socket file is not removed by who did not make it.
pub(crate) fn listener(fd: RawFd, speaks_tls: bool) -> io::Result<(Listener, String)> {
    let socket = copy(fd)?;
    let is = |name, value| match option(&socket, name) {
        Err(error) if error.raw_os_error() == Some(libc::ENOTSOCK) => Ok(false),
        found => Ok::<_, io::Error>(found? == value),
    };
    if !is(libc::SO_TYPE, libc::SOCK_STREAM)? || !is(libc::SO_ACCEPTCONN, 1)? {
        return Err(wrong("not a listening stream socket"));
    }
    match option(&socket, libc::SO_DOMAIN)? {
        libc::AF_INET | libc::AF_INET6 => {
            let listener = TcpListener::from(socket);
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?.to_string();
            let shown = if speaks_tls { "tls:" } else { "" };
            Ok((Listener::Tcp(listener, speaks_tls), format!("{shown}{address}")))
        }
        libc::AF_UNIX => {
            let listener = UnixListener::from(socket);
            listener.set_nonblocking(true)?;
            let path = path(&listener.local_addr()?);
            let address = format!("unix:{path}");
            Ok((Listener::Unix(listener, path), address))
        }
        _ => Err(wrong("neither a TCP nor a unix socket")),
    }
}

fn copy(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: used for the one call, which answers EBADF for a descriptor that is not open.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}

/// A path, or a name that has no file, with the `@` that tools show for its zero.
fn path(address: &SocketAddr) -> String {
    if let Some(path) = address.as_pathname() {
        return path.to_string_lossy().into_owned();
    }
    let name = address.as_abstract_name().unwrap_or_default();
    format!("@{}", String::from_utf8_lossy(name))
}

fn option(socket: &OwnedFd, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: writes at most one c_int, into one of our own.
    let result = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value, &mut size)
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}"))
}
