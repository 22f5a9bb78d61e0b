//! TLS of a client: rustls, between the stream and the socket.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig, ClientConnection, Error, RootCertStore};

/// Trusted authorities, our certificate, and the server's name.
#[derive(Clone, Debug)]
pub struct Tls {
    config: Arc<ClientConfig>,
    server: ServerName<'static>,
}

impl Tls {
    /// `server`: the name that the server's certificate must have. `authorities`: PEM of the authorities of
    /// which one must have signed it; `None`: those that this machine trusts. `identity`: PEM of our own
    /// certificates and key.
    ///
    /// # Errors
    ///
    /// Fails if one of them is invalid; the text says which.
    pub fn new(
        server: &str,
        authorities: Option<&[u8]>,
        identity: Option<(&[u8], &[u8])>,
    ) -> Result<Tls, String> {
        let server = ServerName::try_from(server.to_string())
            .map_err(|error| format!("the name {server:?}: {error}"))?;
        let mut roots = RootCertStore::empty();
        match authorities {
            Some(pem) => {
                for authority in read(pem).map_err(|error| format!("ca: {error}"))? {
                    roots.add(authority).map_err(|error| format!("ca: {error}"))?;
                }
            }
            None => {
                for authority in of_this_machine()? {
                    // An authority that cannot be parsed is left out.
                    let _ = roots.add(authority);
                }
            }
        }
        if roots.is_empty() {
            return Err("ca: this machine has no trusted authorities: name a file with one".into());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let chain = read(certificates).map_err(|error| format!("cert: {error}"))?;
                let key = PrivateKeyDer::from_pem_slice(key);
                let key = key.map_err(|error| format!("key: {error}"))?;
                let made = builder.with_client_auth_cert(chain, key);
                made.map_err(|error| format!("key: {error}"))?
            }
        };
        Ok(Tls { config: Arc::new(config), server })
    }

    /// Begins the TLS of one connection.
    pub fn begin(&self) -> io::Result<Session> {
        let made = ClientConnection::new(self.config.clone(), self.server.clone());
        Ok(Session { connection: made.map_err(io::Error::other)? })
    }
}

/// Returns the authorities in OpenSSL's default file, or in the file named by its environment variables.
fn of_this_machine() -> Result<Vec<CertificateDer<'static>>, String> {
    let Some(path) = openssl_probe::probe().cert_file else { return Ok(Vec::new()) };
    let wrong = |error: &dyn std::fmt::Display| format!("ca: {}: {error}", path.display());
    let pem = std::fs::read(&path).map_err(|error| wrong(&error))?;
    read(&pem).map_err(|error| wrong(&error))
}

fn read(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if all.is_empty() => Err("there is no certificate in it".into()),
        Ok(all) => Ok(all),
        Err(error) => Err(error.to_string()),
    }
}

/// The meaning of an error for the server's or the client's operator. The text is the same each
/// time.
fn meaning(error: Error) -> String {
    use CertificateError as Wrong;
    let Error::InvalidCertificate(wrong) = error else {
        return match error {
            Error::InvalidMessage(_) => "it does not speak TLS at this port".to_owned(),
            other => other.to_string(),
        };
    };
    match wrong {
        Wrong::Expired | Wrong::ExpiredContext { .. } => {
            "its certificate has expired: renew it, or correct the clock of this machine".to_owned()
        }
        Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            "its certificate is not valid yet: correct the clock of this machine, or wait"
                .to_owned()
        }
        Wrong::UnknownIssuer => {
            "no authority that is trusted here has signed its certificate: name the file of \
                                 the authority that has (ca)"
                .to_owned()
        }
        name @ (Wrong::NotValidForName | Wrong::NotValidForNameContext { .. }) => {
            format!("{name}: reach it by a name that its certificate has, or give it one with this name")
        }
        other => format!("its certificate is refused: {other}"),
    }
}

/// One connection's TLS: it neither opens a socket nor waits for one.
pub struct Session {
    connection: ClientConnection,
}

impl Session {
    /// Reads decrypted bytes. 0: the other side has closed.
    pub fn receive(&mut self, socket: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if self.connection.read_tls(socket)? == 0 {
                return Ok(0);
            }
            if let Err(error) = self.connection.process_new_packets() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, meaning(error)));
            }
        }
    }

    /// Accepts some of these bytes, and sends what it can.
    pub fn send(&mut self, socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        if !self.connection.is_handshaking() && self.has_room() {
            taken = self.connection.writer().write(&bytes[..bytes.len().min(TAKEN)])?;
        }
        match self.flush(socket) {
            Ok(()) => Ok(taken),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && taken > 0 => Ok(taken),
            Err(error) => Err(error),
        }
    }

    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(socket)?;
        }
        Ok(())
    }

    /// Returns whether all accepted bytes were sent.
    fn has_room(&self) -> bool {
        !self.connection.wants_write()
    }

    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    pub fn say_goodbye(&mut self, socket: &mut impl Write) {
        self.connection.send_close_notify();
        let _ = self.flush(socket);
    }
}

/// Bytes that are encrypted at once.
const TAKEN: usize = 60 << 10;
