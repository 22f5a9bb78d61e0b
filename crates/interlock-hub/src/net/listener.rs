//! A listening socket.

use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

use crate::shared::mailbox::Peer;

pub enum Listener {
    /// And whether it speaks TLS.
    Tcp(TcpListener, bool),
    Unix(UnixListener, String),
}

impl Listener {
    pub fn port(&self) -> Option<u16> {
        match self {
            Listener::Tcp(listener, _) => listener.local_addr().ok().map(|address| address.port()),
            Listener::Unix(..) => None,
        }
    }

    pub fn fd(&self) -> RawFd {
        match self {
            Listener::Tcp(listener, _) => listener.as_raw_fd(),
            Listener::Unix(listener, _) => listener.as_raw_fd(),
        }
    }

    pub fn accept(&self) -> io::Result<(OwnedFd, Peer)> {
        match self {
            Listener::Tcp(listener, speaks_tls) => {
                let (stream, address) = listener.accept()?;
                stream.set_nonblocking(true)?;
                let local = stream.local_addr().map_or_else(|_| String::new(), |a| a.to_string());
                let (address, speaks_tls) = (address.to_string(), *speaks_tls);
                Ok((stream.into(), Peer { address, local, is_tcp: true, speaks_tls }))
            }
            Listener::Unix(listener, path) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                // As Redis names them.
                let address = format!("{path}:0");
                let (local, is_tcp, speaks_tls) = (address.clone(), false, false);
                Ok((stream.into(), Peer { local, address, is_tcp, speaks_tls }))
            }
        }
    }
}
