//! TLS for connections that come over it: rustls, between the socket and the session.

use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
pub use rustls::ServerConfig;
use rustls::{RootCertStore, ServerConnection};

use crate::net::socket;

/// From the text of PEM files. With `client_authorities` a client must show a certificate that one of
/// them has signed. An error says which of the three it is about.
pub fn config(
    certificates: &[u8],
    key: &[u8],
    client_authorities: Option<&[u8]>,
) -> Result<Arc<ServerConfig>, String> {
    let chain = read_certificates(certificates).map_err(|error| format!("cert: {error}"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("key: {error}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match client_authorities {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let wrong = |error: String| format!("client_ca: {error}");
            let mut roots = RootCertStore::empty();
            for authority in read_certificates(pem).map_err(wrong)? {
                roots.add(authority).map_err(|error| wrong(error.to_string()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            builder.with_client_cert_verifier(
                verifier.build().map_err(|error| wrong(error.to_string()))?,
            )
        }
    };
    let config = builder.with_single_cert(chain, key);
    config.map(Arc::new).map_err(|error| format!("key: {error}"))
}

fn read_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("there is no certificate in it".into()),
        Ok(all) => Ok(all),
        Err(error) => Err(error.to_string()),
    }
}

/// One connection's TLS.
pub struct Tls {
    connection: ServerConnection,
    ended: bool,
}

impl Tls {
    pub fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        // Limit of encrypted bytes that wait for a full socket; the output's limits count the others.
        connection.set_buffer_limit(Some(MOST_ENCRYPTED));
        Ok(Tls { connection, ended: false })
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// The client has said that nothing more comes.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether there is something to send that does not, or no longer, belong to the
    /// session.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Like `socket::receive`. It leaves no decrypted bytes behind, because epoll would not report them.
    pub fn receive(&mut self, fd: RawFd, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        let mut filled = 0;
        // One record decrypts to 16 KiB at most; and who sends empty ones has its turn end too.
        for _ in 0..MOST_READS {
            if buffer.len() - filled < 2 * RECORD {
                break;
            }
            let ended = match self.connection.read_tls(&mut Socket(fd)) {
                Ok(count) => count == 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let state = self.connection.process_new_packets();
            let state = state.map_err(|error| {
                // The reason, for the client.
                let _ = self.connection.write_tls(&mut Socket(fd));
                io::Error::new(io::ErrorKind::InvalidData, error)
            })?;
            let available = state.plaintext_bytes_to_read();
            if available > 0 {
                let end = (filled + available).min(buffer.len());
                self.connection.reader().read_exact(&mut buffer[filled..end])?;
                filled = end;
            }
            if ended || state.peer_has_closed() {
                self.ended = true;
                return Ok(Some(filled));
            }
        }
        Ok((filled > 0).then_some(filled))
    }

    /// Like `socket::send`: returns the number of bytes accepted, which the caller must not send again.
    pub fn send(&mut self, fd: RawFd, parts: &[&[u8]]) -> io::Result<usize> {
        if !self.flush(fd)? {
            return Ok(0);
        }
        let mut taken = 0;
        for part in parts {
            let count = self.connection.writer().write(part)?;
            taken += count;
            if count < part.len() {
                break;
            }
        }
        self.flush(fd)?;
        Ok(taken)
    }

    /// Sends what was encrypted; returns whether all of it is sent.
    pub fn flush(&mut self, fd: RawFd) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Socket(fd)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Tells the client that this is the end, and not a cut.
    pub fn farewell(&mut self, fd: RawFd) {
        self.connection.send_close_notify();
        let _ = self.flush(fd);
    }
}

struct Socket(RawFd);

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        socket::receive(self.0, buffer)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(self.0, &[bytes])?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// From the socket, in one turn.
const MOST_READS: usize = 64;
const RECORD: usize = 16 << 10;
const MOST_ENCRYPTED: usize = 64 << 10;
