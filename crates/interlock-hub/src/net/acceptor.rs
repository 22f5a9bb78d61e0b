//! The accept thread: accepts pending connections, distributes them to the workers in turn, and
//! reads nothing from them.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::net::listener::Listener;
use crate::shared::events::{Events, Level};
use crate::shared::mailbox::{Mail, Mailbox};
use crate::shared::{Rejection, Shared};
use crate::watch::counters::add;

/// Until `stop` is woken.
pub fn accept(shared: &Shared, stop: &Mailbox, listeners: &[Listener]) {
    let poll_for = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut fds = vec![poll_for(stop.event())];
    fds.extend(listeners.iter().map(|listener| poll_for(listener.fd())));
    let (mut next, mut pause) = (0, false);
    let mut complaint = Complaint::default();
    loop {
        // Out of descriptors, only the order to stop is listened to for a moment: the waiting
        // connection would otherwise wake this thread without end.
        let (count, timeout) = if pause { (1, PAUSE) } else { (fds.len(), -1) };
        // SAFETY: `fds` has at least `count` entries.
        unsafe { libc::poll(fds.as_mut_ptr(), count as libc::nfds_t, timeout) };
        if fds[0].revents != 0 {
            return;
        }
        pause = false;
        for listener in listeners {
            loop {
                match listener.accept() {
                    Ok((socket, peer)) => match shared.arrive(&peer) {
                        Ok(()) => match shared.serving(next) {
                            Some(worker) => {
                                shared.send(worker, Mail::Accepted(socket, peer));
                                next = (worker + 1) % shared.mailboxes.len();
                            }
                            None => shared.left(&peer),
                        },
                        Err(refused) if !peer.speaks_tls => refuse_connection(socket, refused),
                        // Without a handshake the client cannot receive an error.
                        Err(_) => {}
                    },
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        add(&shared.counters.accept_errors, 1);
                        let text = format!("cannot take a connection: {error}");
                        complaint.say(&shared.events, text);
                        pause = true;
                        break;
                    }
                }
            }
        }
    }
}

/// A repeating complaint, logged once a minute.
#[derive(Default)]
struct Complaint {
    said: Option<Instant>,
}

impl Complaint {
    fn say(&mut self, events: &Events, text: String) {
        if self.said.is_none_or(|said| said.elapsed() > Duration::from_secs(60)) {
            self.said = Some(Instant::now());
            events.log(Level::Warning, text);
        }
    }
}

fn refuse_connection(socket: OwnedFd, refused: Rejection) {
    let text: &[u8] = match refused {
        Rejection::Full => b"-ERR max number of clients reached\r\n",
        Rejection::Address => b"-ERR max number of clients reached for this address\r\n",
    };
    // A new socket has room for a line; if not, its end says enough.
    let _ = fs::File::from(socket).write(text);
}

/// ms.
const PAUSE: i32 = 20;
