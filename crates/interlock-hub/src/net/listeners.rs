//! The sockets that are listened on: bound here, or handed over by who started the process.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

use crate::net::inherited;
use crate::net::listener::Listener;
use crate::net::socket;
use crate::shared::settings::Settings;

pub struct Listening {
    listeners: Vec<Listener>,
    /// `host:port`, `tls:host:port` or `unix:PATH`, with the port that was really bound.
    pub addresses: Vec<String>,
    file: Option<SocketFile>,
}

/// The file of a unix socket: removed with its hub, or with the attempt to start one.
pub struct SocketFile(String);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Listening {
    /// As the settings say, in which the ports become those that were bound. An error names the
    /// address and the reason.
    pub fn open(settings: &mut Settings) -> io::Result<Self> {
        let mut listeners = Vec::new();
        let mut addresses = Vec::new();
        for &fd in &settings.inherited {
            let failed = |error| refused(&format!("descriptor {fd}"), error);
            let (listener, address) =
                inherited::listener(fd, settings.port_speaks_tls).map_err(failed)?;
            addresses.push(address);
            listeners.push(listener);
        }
        if !listeners.is_empty() {
            settings.host.clear();
            settings.unix.clear();
            settings.port = listeners.iter().find_map(Listener::port).unwrap_or(0);
        }
        if !settings.host.is_empty() {
            let bound = bind(&settings.host, settings.port)?;
            settings.port = bound.1.port();
            let shown = if settings.port_speaks_tls { "tls:" } else { "" };
            addresses.push(format!("{shown}{}", bound.1));
            listeners.push(Listener::Tcp(bound.0, settings.port_speaks_tls));
            if let Some(port) = settings.tls_port {
                let bound = bind(&settings.host, port)?;
                settings.tls_port = Some(bound.1.port());
                addresses.push(format!("tls:{}", bound.1));
                listeners.push(Listener::Tcp(bound.0, true));
            }
        }
        let mut file = None;
        if !settings.unix.is_empty() {
            let path = &settings.unix;
            let failed = |error| refused(&format!("unix:{path}"), error);
            remove_stale(path).map_err(failed)?;
            let listener = bind_unix(path, settings.unix_mode).map_err(failed)?;
            file = Some(SocketFile(path.clone()));
            if let Some(mode) = settings.unix_mode {
                // Restores the bits that the umask removed.
                fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
            }
            socket::listen(listener.as_raw_fd()).map_err(failed)?;
            listener.set_nonblocking(true).map_err(failed)?;
            addresses.push(format!("unix:{path}"));
            listeners.push(Listener::Unix(listener, path.clone()));
        }
        if listeners.is_empty() {
            let text = "the hub has neither host nor unix to listen on";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Listening { listeners, addresses, file })
    }

    /// The sockets, and the file that goes with them.
    pub fn take(&mut self) -> (Vec<Listener>, Option<SocketFile>) {
        (std::mem::take(&mut self.listeners), self.file.take())
    }
}

fn bind(host: &str, port: u16) -> io::Result<(TcpListener, SocketAddr)> {
    let failed = |error| refused(&format!("{host}:{port}"), error);
    let listener = TcpListener::bind((host, port)).map_err(failed)?;
    socket::listen(listener.as_raw_fd()).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// A socket with its file, that is not listened on yet. The file is never open to more than `mode` lets in,
/// not for a moment either: Linux gives it the permissions of the socket, less the umask.
fn bind_unix(path: &str, mode: Option<u32>) -> io::Result<UnixListener> {
    let checked = |result: i32| match result {
        -1 => Err(io::Error::last_os_error()),
        result => Ok(result),
    };
    // SAFETY: all zeros is a valid address; `sun_path` is longer than the path, so that a zero ends it.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if path.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: a call without pointers; the descriptor is new and has no other owner.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        OwnedFd::from_raw_fd(checked(fd)?)
    };
    if let Some(mode) = mode {
        // SAFETY: a call without pointers, on a descriptor that is open.
        checked(unsafe { libc::fchmod(socket.as_raw_fd(), mode) })?;
    }
    let length = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address lives through the call, and `length` is its size.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket.into())
}

/// A socket file behind which nobody listens is left over from a hub that was killed.
fn remove_stale(path: &str) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if is_socket {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?
            }
            _ => {}
        }
    }
    Ok(())
}

fn refused(address: &str, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), CannotListen { address: address.to_owned(), source })
}

/// Names the address; the system's error with its number is the source.
#[derive(Debug)]
struct CannotListen {
    address: String,
    source: io::Error,
}

impl std::fmt::Display for CannotListen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot listen on {}: {}", self.address, self.source)
    }
}

impl std::error::Error for CannotListen {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
